"""The MNIST templates: their digits, a training and its model."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.catalog.faults import Fault
from smdp_launch.localcloud.client import connect as localcloud
from smdp_launch.request.names import S3Location
from tests.conftest import ROOT
from tests.endtoend.conftest import Ran, run_job
from tests.endtoend.leftovers import left_behind

SCRIPTS = ROOT / "templates" / "scripts"


TEMPLATE = ROOT / "templates" / "jobs" / "mnist.yaml"


def prepare(folder: Path, *flags: str) -> Path:
    command = [sys.executable, SCRIPTS / "prepare_mnist.py", folder, *flags]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("mnist"))


def train(
    folder: Path,
    data: Path,
    scripts: Path = SCRIPTS,
    *,
    fault: Fault | None = None,
    workers: int = 2,
    amp: str | None = None,
    **hyperparameters: int | str,
) -> Ran:
    """The template's own job on 2 hosts x 2 workers, with some hyperparameters changed."""
    text = TEMPLATE.read_text().replace("../scripts", str(scripts))
    more = "".join(f"\n    {name}: {value}" for name, value in hyperparameters.items())
    path = folder / "mnist.yaml"
    text = text.replace("    lr: 0.05", f"    lr: 0.05{more}")
    path.write_text(text if amp is None else f"{text}amp: {amp}\n")
    ran = run_job(path, folder / "state", 2, workers, fault=fault, train=data / "train", test=data / "test")
    assert left_behind(str(folder), ran.job) == []
    assert ran.followed.outcome.status == "Completed", ran.followed.outcome.reason
    return ran


def model(ran: Ran, folder: Path) -> dict[str, Any]:
    import torch

    assert ran.followed.outcome.model is not None
    where = S3Location.parse(ran.followed.outcome.model)
    packed = localcloud.object_path(ran.state, where.bucket, where.key)
    assert packed is not None
    with tarfile.open(packed) as tar:
        tar.extract("model.pt", folder, filter="data")
    loaded: dict[str, Any] = torch.load(folder / "model.pt", weights_only=True)
    return loaded
