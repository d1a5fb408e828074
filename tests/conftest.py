"""What the tests of several parts share: a sound job file, and the command line as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAUNCHER = Path(sys.executable).with_name("smdp-launch")

JOB = """\
schema: 1
name: small
engine: native
framework: {name: pytorch, version: "2.0.1"}
image: 123456789012.dkr.ecr.us-east-1.amazonaws.com/smdp-pytorch:2.0.1-cu118
script:
  entry: train.py
  source: src
  hyperparameters: {epochs: 2}
compute:
  instance_type: ml.p4d.24xlarge
  instance_count: 2
  max_run: 600
channels:
  train: {s3: "s3://bucket/train"}
output: {s3: "s3://bucket/output"}
role: arn:aws:iam::123456789012:role/training
region: us-east-1
local: {channels: {train: data}}
"""

Command = Callable[..., subprocess.CompletedProcess[str]]


def write_job(folder: Path, text: str = JOB, script: str = "print('trained')\n") -> Path:
    """A job file with its script and data in ``folder``; returns the file's path."""
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "src" / "train.py").write_text(script)
    (folder / "data").mkdir(exist_ok=True)
    (folder / "data" / "part-0").write_text("0123456789")
    path = folder / "job.yaml"
    path.write_text(text)
    return path


@pytest.fixture(scope="session", autouse=True)
def local_clouds() -> Iterator[None]:
    """Servers of local clouds are forked, unless a test starts the command or the module itself."""
    from tests.support.services import forked_servers

    with forked_servers.forked():
        yield


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    write_job(tmp_path)
    return tmp_path


@pytest.fixture
def smdp_launch(job_folder: Path) -> Command:
    """The installed command in the job's folder; stdin is no terminal."""
    return command_in(job_folder)


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without AWS settings, colours and terminal sizes."""
    hidden = ("AWS_", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)} | more


def command_in(folder: Path) -> Command:
    from tests.support import command  # for tests alone: it is found where pytest looks

    def run(*arguments: str, cwd: Path = folder, **options: Any) -> subprocess.CompletedProcess[str]:
        return command.run(cwd, *arguments, **options)

    return run
