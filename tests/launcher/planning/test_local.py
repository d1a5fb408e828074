"""The parts of a job that a local run does not simulate."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.planning.prepare import local_run
from tests.conftest import JOB, write_job
from tests.launcher.planning.scaling import ON_CPUS

TRAINER = "from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments()).train()\n"


def not_simulated(folder: Path, script: str = "", text: str = JOB, **options: bool) -> str:
    request = LocalRequest(**options)  # type: ignore[arg-type]
    checked = check_job(write_job(folder, text, script), environ={}, local=request)
    return "\n".join(local_run(checked, request, 4).not_simulated)


def test_one_worker_is_singular(tmp_path: Path) -> None:
    request = LocalRequest(hosts=1, workers_per_host=1)
    checked = check_job(write_job(tmp_path, ON_CPUS), environ={}, local=request)
    first, *_ = local_run(checked, request, 1).not_simulated
    assert first == "2 x ml.c5.xlarge: this machine's CPUs run 1 worker instead"


@pytest.mark.parametrize(
    ("installed", "shown"), [("2.13.0+cpu", ": PyTorch 2.13.0 instead of 2.0.1"), ("2.0.0", ""), ("", "")]
)
def test_other_installed_version_is_not_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str, shown: str
) -> None:
    def version(name: str) -> str:
        if name != "torch" or not installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert f"the locally installed packages{shown}\n" in not_simulated(tmp_path)


def test_trainer_without_gpus_is_reported_before_the_run(tmp_path: Path) -> None:
    assert "pass --cuda-on-cpu" in not_simulated(tmp_path, TRAINER)


@pytest.mark.parametrize(
    ("script", "text", "options"),
    [
        (TRAINER, JOB, {"cuda_on_cpu": True}),
        (TRAINER, JOB.replace("native", "gloo").replace("p4d.24xlarge", "c5.4xlarge"), {}),
        (f"{TRAINER}import torch\ntorch.cuda.is_available()\n", JOB, {}),
        ("import transformers\n", JOB, {}),
    ],
)
def test_trainer_that_runs_without_gpus_is_not_reported(
    tmp_path: Path, script: str, text: str, options: dict[str, bool]
) -> None:
    assert "Trainer" not in not_simulated(tmp_path, script, text, **options)
