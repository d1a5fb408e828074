"""Job files with errors, and the diagnostics of each: golden/wrong/NAME/{job.yaml, expected.txt, expected.json}.

python -m tests.support.job_files.wrong_files     # write the current diagnostics; review the difference

A file whose first line is ``# launch --local`` is checked as that command checks it, any other as ``validate`` does.
``measured.json`` beside it has what an earlier run of the job read.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.cli.render.diagnostics import diagnostics_text
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.sizing.need import MeasuredInput
from tests.conftest import ROOT

WRONG = ROOT / "tests/launcher/golden/wrong"


def folders() -> list[Path]:
    return sorted(one.parent for one in WRONG.glob("*/job.yaml"))


def diagnostics() -> list[Diagnostic]:
    """The diagnostics of ``job.yaml`` in the current folder, with an empty environment."""
    path = Path("job.yaml")
    local = LocalRequest() if path.read_bytes().startswith(b"# launch --local\n") else None
    beside = path.with_name("measured.json")
    measured = MeasuredInput(**json.loads(beside.read_text())) if beside.exists() else None
    return list(check_job(path, local, environ={}, measured=measured).diagnostics)


def as_text(found: list[Diagnostic]) -> str:
    return f"{diagnostics_text(found).plain}\n"


def as_json(found: list[Diagnostic]) -> str:
    return json.dumps([one.to_json() for one in found], indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    # The user's own defaults must not affect these files.
    with tempfile.TemporaryDirectory() as no_config:
        os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_CONFIG_DIRS"] = no_config
        for folder in folders():
            os.chdir(folder)
            found = diagnostics()
            if not found:
                sys.exit(f"{folder.name}: no diagnostics")
            Path("expected.txt").write_text(as_text(found))
            Path("expected.json").write_text(as_json(found))


if __name__ == "__main__":
    main()
