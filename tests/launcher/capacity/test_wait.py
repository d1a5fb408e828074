"""`launch --wait-for-capacity`, and `wait_for_capacity` in Python: one job at a time, on the allowed types and regions,
until one has hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

import smdp_launch
from smdp_launch.checking.job import check_job
from smdp_launch.errors import ExitCode, Interrupted, JobFileRefused, Refused, ServiceProblem, WaitTimedOut
from smdp_launch.jobs.capacity import Waits
from smdp_launch.jobs.service.clients import connect_aws
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.planning.prepare import make_plan
from smdp_launch.testing import LocalCloud, local_cloud
from tests.conftest import LAUNCHER, write_job
from tests.launcher.capacity.waits import NCCL, NONE_IN_EAST, QUICK, Wait, account, jobs, region_of
from tests.support import command
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalCloud]:
    with local_cloud() as made:
        boto3.client("s3").create_bucket(Bucket="bucket")
        place = {"LocationConstraint": "us-west-2"}
        boto3.client("s3", "us-west-2").create_bucket(Bucket="bucket-west", CreateBucketConfiguration=place)
        for name in ("bucket", "bucket-west"):
            boto3.client("s3").put_object(Bucket=name, Key="train/part-0", Body=b"0123456789")
        yield made


@pytest.fixture
def cloud(shared: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCloud]:
    """The account of this test, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path, NCCL)
    yield shared
    (shared.state / "account.yaml").unlink(missing_ok=True)


def test_job_without_capacity_runs_in_another_region(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST)
    wait = Wait("us-east-1", "us-west-2")
    clients, plan = wait.wait.run()
    assert (region_of(clients), plan.spec.region) == ("us-west-2", "us-west-2")
    first, second = wait.created()
    assert (first[0], first[1]["TrainingJobStatus"]) == ("us-east-1", "Failed")
    assert first[1]["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute capacity")
    assert second[1]["TrainingJobName"] == plan.job
    assert second[1]["CreationTime"] >= first[1]["SecondaryStatusTransitions"][-1]["StartTime"]  # one after the other
    assert [one.region for one in wait.reported if one.job is None] == ["us-east-1"]


@pytest.mark.runs
def test_job_gets_the_first_type_with_capacity(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST)
    text = NCCL.replace("  max_run: 600\n", "  max_run: 600\n  fallback_types: [ml.p3dn.24xlarge]\n")
    wait = Wait("us-east-1", text=text)
    _, plan = wait.wait.run()
    ((_, described),) = wait.created()
    assert described["TrainingJobName"] == plan.job
    assert described["ResourceConfig"]["SelectedInstanceType"] == "ml.p3dn.24xlarge"
    assert "InstanceType" not in described["ResourceConfig"]


@pytest.mark.runs
def test_pending_job_gets_hosts_when_there_is_capacity(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 60"))
    wait = Wait("us-east-1")

    def report(waits: Waits) -> None:
        wait.reported.append(waits)
        if "Insufficient capacity" in waits.reason:
            account(cloud, "")

    wait.wait.report = report
    _, plan = wait.wait.run()
    assert [one[1]["TrainingJobName"] for one in wait.created()] == [plan.job]
    assert any("Insufficient capacity error from EC2" in one.reason for one in wait.reported)


@pytest.mark.runs
def test_pending_job_is_stopped_before_the_next_region_is_tried(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600"))
    # The job in the other region must leave its pending status within this time, also on a loaded machine.
    wait = Wait("us-east-1", "us-west-2", pauses=replace(QUICK, longest_pending=8.0))
    _, plan = wait.wait.run()
    first, second = wait.created()
    assert (first[1]["TrainingJobStatus"], second[1]["TrainingJobName"]) == ("Stopped", plan.job)
    assert second[1]["CreationTime"] >= first[1]["SecondaryStatusTransitions"][-1]["StartTime"]


@pytest.mark.runs
@pytest.mark.parametrize("capacity_wait", [0, 600])
def test_no_job_is_left_when_the_time_is_over(cloud: LocalCloud, capacity_wait: int) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", f"capacity_wait: {capacity_wait}"))
    wait = Wait("us-east-1", total=2.0)
    with pytest.raises(WaitTimedOut, match="no capacity within 2 s, and no job is left"):
        wait.wait.run()
    states = [one[1]["TrainingJobStatus"] for one in wait.created()]
    assert states
    assert set(states) <= {"Failed", "Stopped"}
    if capacity_wait == 0:
        assert len(states) >= 2  # created again, with pauses
        gaps = [one.again_in for one in wait.reported if one.again_in is not None]
        assert gaps
        assert all(0 < one <= QUICK.longest for one in gaps)


@pytest.mark.runs
def test_quota_in_use_is_waited_for_and_a_quota_too_small_is_refused(cloud: LocalCloud) -> None:
    account(cloud, "quotas: {ml.p4d.24xlarge: 1}\n")
    with pytest.raises(ServiceProblem, match="ResourceLimitExceeded"):
        Wait("us-east-1").wait.run()
    account(cloud, "quotas: {ml.p4d.24xlarge: 2}\n" + NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600"))
    other = make_plan(check_job(write_job(Path.cwd(), NCCL)))
    clients = connect_aws("us-east-1")
    clients.sagemaker.create_training_job(**other.request)  # holds the quota
    wait = Wait("us-east-1", "us-west-2")
    _, plan = wait.wait.run()
    assert plan.spec.region == "us-west-2"
    assert any("utilization of 2 Instances" in one.reason for one in wait.reported)
    clients.sagemaker.stop_training_job(TrainingJobName=other.job)


@pytest.mark.runs
def test_interrupt_stops_the_pending_job(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600"))
    wait = Wait("us-east-1")
    interrupted = wait.regions[0].clients.interrupted
    wait.wait.report = lambda waits: None if waits.is_stopping else interrupted.set()
    with pytest.raises(Interrupted, match="waited for capacity in us-east-1 and was stopped"):
        wait.wait.run()
    assert [one[1]["TrainingJobStatus"] for one in wait.created()] == ["Stopped"]


class Outage:
    """An outage of the service for one wait, which begins when its job is pending, and ends after ``tries`` calls."""

    def __init__(self, cloud: LocalCloud, wait: Wait, error: Exception, tries: float) -> None:
        self.cloud, self.error, self.left = cloud, error, tries
        self.clients = wait.regions[0].clients
        self.clients.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.01, total=0.02, credential_tries=2)
        self.clients.reconnect = None
        wait.wait.report = self.begin

    def begin(self, _: Waits) -> None:
        self.clients.sagemaker.meta.events.register("before-call.sagemaker", self.call)

    def call(self, **_: Any) -> None:
        if self.left > 0:
            self.left -= 1
            raise self.error
        account(self.cloud, "")  # there are hosts now


EXPIRED = ClientError({"Error": {"Code": "ExpiredTokenException", "Message": "expired"}}, "DescribeTrainingJob")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://api.sagemaker")


@pytest.mark.parametrize("error", [EXPIRED, UNREACHABLE], ids=["credentials", "network"])
def test_outage_does_not_end_the_wait_for_a_pending_job(cloud: LocalCloud, error: Exception) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600"))
    wait = Wait("us-east-1")
    outage = Outage(cloud, wait, error, tries=12)
    _, plan = wait.wait.run()
    assert outage.left == 0
    assert [one[1]["TrainingJobName"] for one in wait.created()] == [plan.job]
    assert outage.clients.retry_policy.total == 0.02


@pytest.mark.runs
def test_job_that_cannot_be_stopped_after_an_interrupt_is_named(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600"))
    wait = Wait("us-east-1")
    outage = Outage(cloud, wait, UNREACHABLE, tries=float("inf"))
    outage.clients.on_waiting = lambda _: outage.clients.interrupted.set()  # Ctrl-C, and again
    with pytest.raises(Interrupted) as raised:
        wait.wait.run()
    (name,) = wait.names
    assert str(raised.value).endswith(f"job {name} is pending in us-east-1 and may start: smdp-launch stop {name}")
    boto3.client("sagemaker").stop_training_job(TrainingJobName=name)


@pytest.mark.runs
def test_job_that_cannot_be_stopped_after_ctrl_c_in_python_is_named(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600"))
    wait = Wait("us-east-1")
    outage = Outage(cloud, wait, UNREACHABLE, tries=float("inf"))

    def interrupt(waits: Waits) -> None:
        outage.begin(waits)
        raise KeyboardInterrupt

    wait.wait.report = interrupt
    with pytest.raises(KeyboardInterrupt, match="is pending in us-east-1 and may start: smdp-launch stop small"):
        wait.wait.run()
    boto3.client("sagemaker").stop_training_job(TrainingJobName=wait.names[0])


@pytest.mark.runs
def test_other_failure_of_the_job_ends_the_wait(cloud: LocalCloud) -> None:
    account(cloud, "roles: {}\n")
    with pytest.raises(ServiceProblem):
        Wait("us-east-1").wait.run()


class Called:
    """What `smdp_launch.launch` reports while it waits. ``act`` is called with each."""

    def __init__(self, act: Callable[[Waits], None] = lambda _: None) -> None:
        self.waits: list[Waits] = []
        self.act = act

    def __call__(self, waits: Waits) -> None:
        self.waits.append(waits)
        self.act(waits)

    def created(self) -> list[tuple[str, dict[str, Any]]]:
        """The jobs that this folder has launched."""
        history = [json.loads(one) for one in Path(".smdp/history.jsonl").read_text().splitlines()]
        names = {one["job"] for one in history if "where" in one}
        return [one for one in jobs("us-east-1", "us-west-2") if one[1]["TrainingJobName"] in names]


WEST = NCCL.replace("s3://bucket/", "s3://bucket-west/").replace("us-east-1", "us-west-2")


def test_python_api_returns_the_job_of_the_region_with_capacity(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST)
    Path("west.yaml").write_text(WEST)
    called = Called()
    job = smdp_launch.launch("job.yaml", wait_for_capacity=20, also=["west.yaml"], on_waits=called)
    first, second = called.created()
    assert (first[0], first[1]["TrainingJobStatus"]) == ("us-east-1", "Failed")
    assert (job.where, job.name) == ("us-west-2", second[1]["TrainingJobName"])
    assert second[1]["CreationTime"] >= first[1]["SecondaryStatusTransitions"][-1]["StartTime"]  # one after the other
    assert job.wait(timeout=120).exit_code == ExitCode.OK
    assert any(one.region == "us-east-1" and "CapacityError" in one.reason for one in called.waits)


@pytest.mark.runs
def test_python_api_leaves_no_job_when_the_time_is_over(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600"))
    called = Called()
    with pytest.raises(WaitTimedOut, match="no capacity within 3 s, and no job is left"):
        smdp_launch.launch("job.yaml", wait_for_capacity=3, on_waits=called)
    assert [one[1]["TrainingJobStatus"] for one in called.created()] == ["Stopped"]


def test_ctrl_c_in_python_stops_the_pending_job(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600"))
    called = Called(lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        smdp_launch.launch("job.yaml", wait_for_capacity=60, on_waits=called)
    assert [one[1]["TrainingJobStatus"] for one in called.created()] == ["Stopped"]


def test_python_api_refuses_what_cannot_wait(cloud: LocalCloud) -> None:
    with pytest.raises(Refused, match="a plan has one name"):
        smdp_launch.launch(smdp_launch.plan("job.yaml"), wait_for_capacity=60)
    with pytest.raises(Refused, match="a plan has one name"):
        smdp_launch.launch("job.yaml", wait_for_capacity=60, also=[smdp_launch.plan("job.yaml")])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="28 days"):
        smdp_launch.launch("job.yaml", wait_for_capacity=0)
    with pytest.raises(ValueError, match="need wait_for_capacity"):
        smdp_launch.launch("job.yaml", also=["job.yaml"])
    with pytest.raises(JobFileRefused):
        smdp_launch.launch("job.yaml", wait_for_capacity=60, also=[{"schema": 1}])
    assert not Path(".smdp/history.jsonl").exists()


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return command.run(Path.cwd(), "launch", "--yes", *arguments, timeout=120, env={**os.environ}, **options)


@pytest.mark.runs
def test_launch_waits_and_follows_the_job_in_the_other_region(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST)
    Path("west.yaml").write_text(WEST)
    ran = run("--wait-for-capacity", "20s", "--also", "west.yaml")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "note: us-east-1: no hosts: CapacityError: Unable to provision" in ran.stderr
    history = [json.loads(one) for one in Path(".smdp/history.jsonl").read_text().splitlines()]
    assert [one["where"] for one in history if "where" in one] == ["us-east-1", "us-west-2"]
    assert [one["ended"] for one in history if "ended" in one] == ["Failed", "Completed"]


@pytest.mark.runs
def test_launch_without_capacity_in_time_has_its_exit_code(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST)
    ran = run("--wait-for-capacity", "4s", "--json")
    assert ran.returncode == ExitCode.WAIT_TIMED_OUT
    assert "no capacity within 4 s, and no job is left" in ran.stderr
    lines = [json.loads(one) for one in ran.stdout.splitlines()]
    assert {one["seen"] for one in lines[:-1]} == {"waiting"}
    assert lines[-1]["exit_code"] == ExitCode.WAIT_TIMED_OUT


@pytest.mark.runs
def test_ctrl_c_leaves_no_job(cloud: LocalCloud) -> None:
    account(cloud, NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600"))
    arguments = [str(LAUNCHER), "launch", "--yes", "--wait-for-capacity", "60s"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        wait_for(lambda: any(one[1]["TrainingJobStatus"] == "InProgress" for one in jobs("us-east-1")), "the job")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, said
    assert "was stopped" in said
    assert all(one[1]["TrainingJobStatus"] != "InProgress" for one in jobs("us-east-1"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--also", "job.yaml"], "--also needs --wait-for-capacity"),
        (["--local", "--wait-for-capacity", "1h"], "--wait-for-capacity is for jobs on AWS"),
        (["--wait-for-capacity", "soon"], "'soon' is no time: write one such as 30m or 6h"),
        (["--wait-for-capacity", "29d"], "28d at most"),
    ],
)
def test_wrong_options_are_refused(job_folder: Path, arguments: list[str], message: str) -> None:
    ran = command.run(write_job(job_folder).parent, "launch", *arguments, timeout=60)
    assert (ran.returncode, message in " ".join(ran.stderr.split())) == (ExitCode.USAGE, True), ran.stderr


def test_errors_of_another_file_are_reported_before_any_job(job_folder: Path) -> None:
    path = write_job(job_folder, NCCL)
    (job_folder / "west.yaml").write_text(NCCL.replace("ml.p4d.24xlarge", "ml.p4d.24xlarg"))
    ran = command.run(path.parent, "launch", "--wait-for-capacity", "1h", "--also", "west.yaml", timeout=60)
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "west.yaml:" in ran.stderr
