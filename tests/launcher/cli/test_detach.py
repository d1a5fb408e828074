"""Ctrl-C while a job is created that is not followed, and what a detached command says."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.cli.shared.follow_session import Answer, FollowSession, RunOptions, submit_detached
from smdp_launch.errors import ExitCode, Interrupted
from tests.support.jobs.plans import plan_of
from tests.support.services.scripted_service import ScriptedService


class InterruptedService(ScriptedService):
    """The user presses Ctrl-C during the calls with these names."""

    def __init__(self, *during: str) -> None:
        super().__init__()
        self.during, self.created = during, 0

    def put_object(self, **_: Any) -> None:
        self._interrupt("PutObject")

    def create_training_job(self, **_: Any) -> None:
        self._interrupt("CreateTrainingJob")
        self.created += 1

    def _interrupt(self, call: str) -> None:
        if call in self.during:
            os.kill(os.getpid(), signal.SIGINT)


def test_interrupt_of_the_creation_names_the_job_that_runs(job_folder: Path) -> None:
    service = InterruptedService("CreateTrainingJob")
    clients, plan = service.clients(), plan_of(job_folder / "job.yaml")
    clients.s3 = service
    with pytest.raises((Interrupted, KeyboardInterrupt)) as raised:
        submit_detached(clients, plan)
    assert isinstance(raised.value, Interrupted)
    assert service.created == 1
    assert str(raised.value) == f"{plan.job} was created and runs; `smdp-launch stop {plan.job}` stops it"
    assert raised.value.exit_code is ExitCode.INTERRUPTED


def test_interrupt_of_the_upload_creates_no_detached_job(job_folder: Path) -> None:
    service = InterruptedService("PutObject")
    clients, plan = service.clients(), plan_of(job_folder / "job.yaml")
    clients.s3 = service
    with pytest.raises(KeyboardInterrupt):
        submit_detached(clients, plan)
    assert service.created == 0


def test_detached_command_names_the_region_of_a_job_of_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    clients = ScriptedService().clients()
    clients.interrupted.set()
    session = FollowSession(clients, "j", None, Answer.DETACH, options=RunOptions("eu-west-1"))
    assert session.run() is None
    assert capsys.readouterr().err == "next: smdp-launch follow j --region eu-west-1\n"
