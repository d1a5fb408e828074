"""`launch --wait-for-capacity` while AWS does not answer: a job that may exist is stopped or named, and an interrupt
ends the wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from smdp_launch.cli.shared.capacity import _print, _print_json
from smdp_launch.errors import Interrupted, WaitTimedOut
from smdp_launch.jobs.capacity import Waits
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.testing import LocalCloud, local_cloud
from tests.conftest import write_job
from tests.launcher.capacity.waits import NCCL, NONE_IN_EAST, Wait, account
from tests.support.waiting import wait_for

PENDING = NONE_IN_EAST.replace("capacity_wait: 0", "capacity_wait: 600")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://api.sagemaker")


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalCloud]:
    with local_cloud() as made:
        boto3.client("s3").create_bucket(Bucket="bucket")
        boto3.client("s3").put_object(Bucket="bucket", Key="train/part-0", Body=b"0123456789")
        yield made


@pytest.fixture
def cloud(shared: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCloud]:
    """An account in which each job stays pending."""
    monkeypatch.chdir(tmp_path)
    write_job(tmp_path, NCCL)
    account(shared, PENDING)
    yield shared
    (shared.state / "account.yaml").unlink(missing_ok=True)
    sagemaker = boto3.client("sagemaker")
    for one in sagemaker.list_training_jobs(StatusEquals="InProgress")["TrainingJobSummaries"]:
        sagemaker.stop_training_job(TrainingJobName=one["TrainingJobName"])


class Outage:
    """A wait during which ``tries`` calls of the service fail, from the creation of the job on.

    Args:
        is_sent: whether the first request of the creation reaches the service, so that only its answer is lost.
    """

    def __init__(self, *, tries: float, is_sent: bool, total: float = 60.0) -> None:
        self.left, self.is_out = tries, not is_sent
        self.requests: list[str] = []
        self.wait = Wait("us-east-1", total=total)
        self.clients = self.wait.regions[0].clients
        self.clients.retry_policy = RetryPolicy(first_gap=0.01, longest_gap=0.01, total=0.05)
        self.clients.reconnect = None
        events = self.clients.sagemaker.meta.events
        events.register("before-call.sagemaker", self.before)
        events.register("after-call.sagemaker.CreateTrainingJob", self.begin)

    def before(self, model: Any, **_: Any) -> None:
        self.requests.append(model.name)
        if self.is_out and self.left > 0:
            self.left -= 1
            raise UNREACHABLE

    def begin(self, **_: Any) -> None:
        if not self.is_out:
            self.is_out = True
            raise UNREACHABLE

    def interrupt_after(self, tries: int) -> None:
        """One Ctrl-C."""
        waits: list[object] = []

        def on_waiting(waiting: object) -> None:
            waits.append(waiting)
            if len(waits) == tries:
                self.clients.interrupted.set()

        self.clients.on_waiting = on_waiting

    def states(self) -> list[str]:
        return [one[1]["TrainingJobStatus"] for one in self.wait.created()]


@pytest.mark.parametrize(("is_sent", "left"), [(True, ["Stopped"]), (False, [])])
def test_job_whose_creation_was_not_answered_does_not_outlive_the_wait(
    cloud: LocalCloud, is_sent: bool, left: list[str]
) -> None:
    outage = Outage(tries=150, is_sent=is_sent, total=0.5)
    with pytest.raises(
        WaitTimedOut, match=r"no capacity within 0 s, and no job is left; last: (the time is|job small)"
    ):
        outage.wait.wait.run()
    assert outage.left == 0
    assert outage.states() == left


def test_job_that_may_exist_is_named_after_one_interrupt(cloud: LocalCloud) -> None:
    outage = Outage(tries=400, is_sent=True)
    outage.interrupt_after(3)
    with pytest.raises(Interrupted) as raised:
        outage.wait.wait.run()
    (name,) = outage.wait.names
    assert str(raised.value).endswith(f"job {name} may exist in us-east-1 and start: smdp-launch stop {name}")
    assert outage.left > 300
    assert [one for one in outage.wait.reported if one.is_stopping] == [
        Waits("us-east-1", name, "interrupted", is_stopping=True)
    ]


def test_interrupt_stops_a_job_whose_creation_was_not_answered(cloud: LocalCloud) -> None:
    outage = Outage(tries=5, is_sent=True)
    # The rest of the outage ends before the stop gives up, however slow the machine is.
    outage.clients.retry_policy = replace(outage.clients.retry_policy, total=60.0)
    outage.interrupt_after(4)
    with pytest.raises(Interrupted, match="waited for capacity in us-east-1 and was stopped"):
        outage.wait.wait.run()
    assert outage.states() == ["Stopped"]


def test_pending_job_is_named_after_one_interrupt_in_an_outage(cloud: LocalCloud) -> None:
    outage = Outage(tries=0, is_sent=False)
    outage.interrupt_after(3)

    def report(waits: Waits) -> None:
        outage.left = 400 if outage.left == 0 else outage.left

    outage.wait.wait.report = report
    with pytest.raises(Interrupted) as raised:
        outage.wait.wait.run()
    (name,) = outage.wait.names
    assert str(raised.value).endswith(f"job {name} is pending in us-east-1 and may start: smdp-launch stop {name}")
    assert outage.left > 300


def test_quota_that_the_job_itself_may_use_creates_no_other(cloud: LocalCloud) -> None:
    outage = Outage(tries=0, is_sent=True)
    text = "the account-level service limit 'p4d' is 2 Instances, with a request delta of 2 Instances"
    refusals = [ClientError({"Error": {"Code": "ResourceLimitExceeded", "Message": text}}, "CreateTrainingJob")]

    def refuse(**_: Any) -> None:
        if outage.is_out and refusals:
            raise refusals.pop()

    def report(waits: Waits) -> None:
        if waits.job is not None:
            outage.clients.interrupted.set()

    outage.clients.sagemaker.meta.events.register("before-call.sagemaker.CreateTrainingJob", refuse)
    outage.wait.wait.report = lambda waits: None if waits.is_stopping else report(waits)
    with pytest.raises(Interrupted, match="was stopped"):
        outage.wait.wait.run()
    assert refusals == []
    assert len(outage.wait.names) == 1
    assert outage.states() == ["Stopped"]


@pytest.mark.parametrize("is_deferred", [True, False])
def test_interrupt_during_the_upload_leaves_no_job(cloud: LocalCloud, is_deferred: bool) -> None:
    outage = Outage(tries=400, is_sent=False)

    def fail(**_: Any) -> None:
        raise UNREACHABLE

    def interrupt(_: object) -> None:
        if is_deferred:
            outage.clients.interrupted.set()
        else:
            signal.raise_signal(signal.SIGINT)

    outage.clients.s3.meta.events.register("before-call.s3", fail)
    outage.clients.on_waiting = interrupt
    with pytest.raises(Interrupted if is_deferred else KeyboardInterrupt) as raised:
        outage.wait.wait.run()
    assert str(raised.value).endswith("; no job is left" if is_deferred else "")
    assert "pending" not in str(raised.value)
    assert outage.requests == []


def test_interrupt_at_the_end_of_the_upload_creates_no_job(cloud: LocalCloud) -> None:
    outage = Outage(tries=0, is_sent=False)
    outage.clients.s3.meta.events.register("before-call.s3", lambda **_: outage.clients.interrupted.set())
    with pytest.raises(Interrupted, match="no job is left"):
        outage.wait.wait.run()
    assert outage.requests == []


@pytest.mark.parametrize("interrupts", [1, 2])
def test_ctrl_c_in_python_after_a_lost_answer_names_the_job(cloud: LocalCloud, interrupts: int) -> None:
    outage = Outage(tries=400, is_sent=True)
    left = [signal.SIGINT] * interrupts

    def interrupt(_: object) -> None:
        if left:
            signal.raise_signal(left.pop())

    outage.clients.on_waiting = interrupt
    with pytest.raises(KeyboardInterrupt, match="may exist in us-east-1 and start: smdp-launch stop small"):
        outage.wait.wait.run()


def test_job_that_got_hosts_before_ctrl_c_in_python_is_named(cloud: LocalCloud) -> None:
    wait = Wait("us-east-1")

    def interrupt(_: Waits) -> None:
        account(cloud, "")
        wait_for(lambda: wait.created()[0][1]["SecondaryStatus"] not in ("Pending", "Starting"), "the hosts")
        raise KeyboardInterrupt

    wait.wait.report = interrupt
    with pytest.raises(KeyboardInterrupt, match="has got hosts: smdp-launch stop small"):
        wait.wait.run()


@pytest.mark.parametrize("show", [_print, _print_json])
def test_command_shows_at_the_interrupt_how_to_leave_the_job(show: Any, capsys: pytest.CaptureFixture[str]) -> None:
    show(Waits("us-east-1", "small", "interrupted", is_stopping=True))
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "note: trying to stop small; press Ctrl-C again to leave it\n")
