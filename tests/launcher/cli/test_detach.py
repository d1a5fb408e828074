"""Ctrl-C while a job or a sweep is created, and what a detached command says."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.cli.commands import launch
from smdp_launch.cli.shared import submission
from smdp_launch.cli.shared.follow_session import Answer, FollowSession, RunOptions, submit_detached
from smdp_launch.cli.shared.sweeps import submit_sweep
from smdp_launch.errors import ExitCode, Interrupted
from smdp_launch.jobs.capacity import CapacityWait, Pauses, Region
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.planning.plan import Plan
from tests.conftest import JOB, write_job
from tests.support.jobs.plans import plan_of
from tests.support.services.scripted_service import ScriptedService


class InterruptedService(ScriptedService):
    """The user presses Ctrl-C during the calls with these names."""

    def __init__(self, *during: str) -> None:
        super().__init__()
        self.during, self.created, self.signal = during, 0, signal.SIGINT

    def put_object(self, **_: Any) -> None:
        self._interrupt("PutObject")

    def create_training_job(self, **_: Any) -> None:
        self._interrupt("CreateTrainingJob")
        self.created += 1

    def create_hyper_parameter_tuning_job(self, **_: Any) -> None:
        self._interrupt("CreateHyperParameterTuningJob")
        self.created += 1

    def describe_hyper_parameter_tuning_job(self, **_: str) -> dict[str, Any]:
        objective = {"Type": "Minimize", "MetricName": "loss"}
        config = {"HyperParameterTuningJobObjective": objective, "ResourceLimits": {"MaxNumberOfTrainingJobs": 1}}
        return {"HyperParameterTuningJobStatus": "InProgress", "HyperParameterTuningJobConfig": config}

    def paginate(self, **_: str) -> list[dict[str, Any]]:
        return [{"TrainingJobSummaries": []}]

    def _interrupt(self, call: str) -> None:
        if call in self.during:
            os.kill(os.getpid(), self.signal)


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


SWEEP = f"""{JOB}metrics: {{loss: 'loss=([0-9.]+)'}}
sweep:
  objective: {{metric: loss, goal: minimize}}
  strategy: grid
  ranges: {{categorical: {{depth: [1, 2]}}}}
"""


def sweep_of(folder: Path, service: InterruptedService) -> tuple[Clients, Plan]:
    clients = service.clients()
    clients.s3 = service
    return clients, plan_of(write_job(folder, SWEEP))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("detach", [True, False])
def test_interrupt_of_the_creation_names_the_sweep_that_runs(
    job_folder: Path, capsys: pytest.CaptureFixture[str], sent: signal.Signals, *, detach: bool
) -> None:
    service = InterruptedService("CreateHyperParameterTuningJob")
    service.signal = sent
    clients, plan = sweep_of(job_folder, service)
    if detach:
        with pytest.raises(Interrupted, match=f"^{plan.job} was created and runs; `smdp-launch stop {plan.job}` stops"):
            submit_sweep(clients, plan, detach=True)
    else:
        assert submit_sweep(clients, plan, detach=False) is None
        assert f"note: {plan.job} continues (InProgress, " in capsys.readouterr().err
    assert service.created == 1


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_of_the_upload_creates_no_sweep(job_folder: Path, sent: signal.Signals) -> None:
    service = InterruptedService("PutObject")
    service.signal = sent
    clients, plan = sweep_of(job_folder, service)
    with pytest.raises(KeyboardInterrupt):
        submit_sweep(clients, plan, detach=False)
    assert service.created == 0


def test_interrupt_while_a_job_gets_hosts_is_left_to_the_command(
    job_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits for capacity, the user interrupts, and it has hosts when the command looks again."""
    monkeypatch.chdir(job_folder)
    service = InterruptedService()
    clients, plan = service.clients(), plan_of(job_folder / "job.yaml")
    clients.s3, service.fields = service, {"SecondaryStatus": "Pending"}

    def report(_: object) -> None:
        clients.interrupted.set()
        service.fields = {}

    wait = CapacityWait([Region(clients, lambda: plan)], 60.0, report, Pauses(poll=0.01))
    monkeypatch.setattr(submission, "connect_for", lambda *_, **__: clients)
    monkeypatch.setattr(launch, "await_capacity", lambda *_, **__: wait.run())
    options = launch.LaunchOptions(dry_run=False, yes=True, detach=True, as_json=False, capacity_wait=60.0)
    with pytest.raises(Interrupted, match=f"^{plan.job} was created and runs; "):
        launch._submit_plan(plan, options, [], lambda: None)
    assert service.created == 1
