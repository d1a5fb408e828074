"""Job files for torch.distributed with its own backends, and the diagnostics of changed ones."""

from __future__ import annotations

from pathlib import Path

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic
from tests.conftest import JOB, write_job

AWS_IMAGE = JOB.replace("engine: native", "engine: nccl").replace("image: ", "# image: ").replace('"2.0.1"', '"2.5.1"')
SCRIPT = "print('trained')\n"


def found(
    folder: Path, *changes: tuple[str, str], more: str = "", script: str = SCRIPT, local: LocalRequest | None = None
) -> list[Diagnostic]:
    text = AWS_IMAGE
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return list(check_job(write_job(folder, f"{text}{more}", script), local).diagnostics)


def codes(diagnostics: list[Diagnostic]) -> list[str]:
    return [one.code for one in diagnostics]


def on(type_: str) -> tuple[str, str]:
    return "ml.p4d.24xlarge", type_
