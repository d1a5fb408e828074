"""Faults that the local cloud injects into a job: what happens to the job, and what the service reports."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from smdp_launch.catalog.faults import VARIABLE, Fault, Kind
from tests.support.jobs.rehearsed import COUNTS
from tests.support.services.cloud import Cloud


def run(cloud: Cloud, name: str, fault: Fault, script: str = COUNTS, **changes: Any) -> dict[str, Any]:
    environment = {
        "INTERRUPTED": str(int(fault.kind == "spot")),
        "SMDP_WORKERS_PER_HOST": "2",
        VARIABLE: fault.to_text(),
        **changes.pop("Environment", {}),
    }
    keeps = {"CheckpointConfig": {"S3Uri": f"s3://bucket/checkpoints/{name}"}}
    request = cloud.request(name, script, hosts=2, **{**keeps, **changes})
    cloud.sagemaker.create_training_job(**{**request, "Environment": environment})
    described: dict[str, Any] = cloud.wait(name)
    return described


def spot(**given: Any) -> Fault:
    return Fault(**{"kind": "spot", "host": "algo-1", "rank": 0, "seconds": 2.0, **given})


def statuses(described: dict[str, Any]) -> list[str]:
    return [one["Status"] for one in described["SecondaryStatusTransitions"]]


def events_of(cloud: Cloud, name: str, event: str) -> list[dict[str, Any]]:
    lines = [line.partition("] ")[2] for line in cloud.log(name)]
    events = [json.loads(line) for line in lines if line.startswith('{"smdp_event":')]
    return [one for one in events if one["event"] == event]


def test_interrupted_job_resumes_from_its_checkpoints(either_cloud: Cloud) -> None:
    name = f"spot-{either_cloud.level}"
    described = run(either_cloud, name, spot(step=6))
    again = ["Starting", "Downloading", "Training"]
    assert statuses(described) == [
        "Pending", "Downloading", "Training", "Interrupted", *again, "Uploading", "Completed",
    ]  # fmt: skip
    (away,) = [one for one in described["SecondaryStatusTransitions"] if one["Status"] == "Interrupted"]
    most = math.ceil((away["EndTime"] - away["StartTime"]).total_seconds())
    assert 2 <= described["TrainingTimeInSeconds"] - described["BillableTimeInSeconds"] <= most
    assert [one["what"] for one in events_of(either_cloud, name, "fault")] == ["interrupted"]
    assert [one["host"] for one in events_of(either_cloud, name, "checkpoints_restored")] == ["algo-1", "algo-2"]
    steps = [one["step"] for one in events_of(either_cloud, name, "step")]
    assert steps[:6] == [1, 2, 3, 4, 5, 6] and steps[-1] == 12 and 1 not in steps[6:]


def test_checkpoint_saved_within_the_grace_is_kept(either_cloud: Cloud) -> None:
    name = f"grace-{either_cloud.level}"
    run(either_cloud, name, spot(step=6), Environment={"SAVE": "term"})
    begins = [int(line.rpartition(" ")[2]) for line in either_cloud.log(name) if "begins at" in line]
    assert begins.count(0) == 4 and len([count for count in begins if 6 <= count < 12]) == 4


@pytest.mark.runs
def test_interruption_without_grace_loses_unsaved_checkpoints(either_cloud: Cloud) -> None:
    name = f"crash-{either_cloud.level}"
    run(either_cloud, name, spot(step=3, grace=0), Environment={"SAVE": "term"})
    assert events_of(either_cloud, name, "checkpoints_restored") == []
    assert sum("begins at 0" in line for line in either_cloud.log(name)) == 8


@pytest.mark.runs
def test_job_ends_when_capacity_is_not_back_in_time(cloud: Cloud) -> None:
    limits = {"MaxRuntimeInSeconds": 10, "MaxWaitTimeInSeconds": 10}
    described = run(
        cloud, "gives-up", spot(after=0.5, seconds=600.0), StoppingCondition=limits, EnableManagedSpotTraining=True
    )
    assert described["TrainingJobStatus"] == "Stopped"
    assert statuses(described)[-2:] == ["Interrupted", "MaxWaitTimeExceeded"]


@pytest.mark.parametrize(("kind", "what"), [("kill", ["killed"]), ("slow", ["stopped", "continued"])])
def test_fault_is_injected_into_the_worker_at_its_step(either_cloud: Cloud, kind: Kind, what: list[str]) -> None:
    name = f"{kind}-{either_cloud.level}"
    described = run(either_cloud, name, Fault(kind, "algo-2", 3, step=4, seconds=1.0))
    events = events_of(either_cloud, name, "fault")
    assert [one["what"] for one in events] == what and {one["host"] for one in events} == {"algo-2"}
    if kind == "kill":
        assert "rank 3 on algo-2" in described["FailureReason"] and "SIGKILL" in described["FailureReason"]
    else:
        assert described["TrainingJobStatus"] == "Completed"
        assert events[1]["time"] - events[0]["time"] >= 1.0


@pytest.mark.runs
def test_fault_waits_for_the_start_of_its_worker(cloud: Cloud) -> None:
    described = run(cloud, "early", Fault("kill", "algo-2", 3, after=0.0))
    assert "rank 3 on algo-2" in described["FailureReason"]
    assert [one["what"] for one in events_of(cloud, "early", "fault")] == ["killed"]


@pytest.mark.runs
def test_stopped_job_continues_its_paused_worker(cloud: Cloud) -> None:
    name = "stopped-slow"
    fault = Fault("slow", "algo-2", 3, after=0.0, seconds=600.0)
    request = cloud.request(name, COUNTS, hosts=2, CheckpointConfig={"S3Uri": "s3://bucket/checkpoints/stopped"})
    request["Environment"] = {"SMDP_WORKERS_PER_HOST": "2", VARIABLE: fault.to_text()}
    cloud.sagemaker.create_training_job(**request)
    cloud.await_log(name, '"what": "stopped"')
    cloud.sagemaker.stop_training_job(TrainingJobName=name)
    assert cloud.wait(name, 90)["TrainingJobStatus"] == "Stopped"  # before SIGKILL, which comes after 115 s


def test_late_host_starts_after_its_delay(either_cloud: Cloud) -> None:
    name = f"late-{either_cloud.level}"
    described = run(either_cloud, name, Fault("late", "algo-2", 2, seconds=1.5))
    assert described["TrainingJobStatus"] == "Completed"
    [event] = events_of(either_cloud, name, "fault")
    assert event["host"] == "algo-2" and event["seconds"] >= 1.5


def test_invalid_fault_fails_the_job(cloud: Cloud) -> None:
    request = cloud.request("nonsense", "", Environment={VARIABLE: "spot please"})
    cloud.sagemaker.create_training_job(**request)
    assert cloud.wait("nonsense")["FailureReason"].startswith(f"ClientError: {VARIABLE}: ")
