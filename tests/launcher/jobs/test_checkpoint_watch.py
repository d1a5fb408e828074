"""The checkpoint watch reports once when checkpoints stop arriving in S3, and once when they arrive again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from smdp_launch.jobs.checkpoints.listing import list_checkpoints
from smdp_launch.jobs.checkpoints.watch import (
    CheckpointEvent,
    CheckpointKept,
    CheckpointsStalled,
    CheckpointsUnseen,
    CheckpointWatch,
    StallThresholds,
)
from smdp_launch.jobs.follow import Follower
from smdp_launch.jobs.service.clients import Clients, connect_endpoint
from smdp_launch.jobs.status.description import Step, describe
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.services.faulty_service import cloud_with_data
from tests.support.waiting import wait_for

WHERE = f"s3://{BUCKET}/kept/sleeps"
MINUTE, HOUR = 60.0, 3600.0


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("watch") / "state") as local:
        long = {"MaxRuntimeInSeconds": 3600}
        config = {"S3Uri": WHERE}
        local.start("sleeps", "import time\ntime.sleep(3000)\n", CheckpointConfig=config, StoppingCondition=long)
        wait_for(lambda: local.describe("sleeps")["SecondaryStatus"] == "Training", "training")
        yield local
        local.sagemaker.stop_training_job(TrainingJobName="sleeps")
        local.wait("sleeps")


@dataclass
class Scenario:
    """A bucket whose objects have times relative to the start of training, and a watch with the clock ``now``, in
    seconds. The watch runs in a follower of the job, or alone, which needs fewer calls."""

    cloud: Cloud
    clients: Clients
    is_followed: bool = False
    now: float = 0.0
    skew: float = 0.0  # of S3's clock
    sends_date: bool = True
    listings: int = 0
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.times: dict[str, float] = {}
        self.job = describe(self.clients, "sleeps")
        self.began = next(one.began for one in self.job.steps if one.status == "Training")
        self.clients.s3.meta.events.register("before-call.s3.ListObjectsV2", self._before)
        self.clients.s3.meta.events.register("after-call.s3.ListObjectsV2", self._after)
        self.watch = CheckpointWatch(self.clients, StallThresholds(), lambda: self.now, lambda work: work())
        self.follower = Follower(self.clients, "sleeps", clock=lambda: self.now, watch=self.watch)

    def _before(self, **_: object) -> None:
        self.listings += 1
        if self.error is not None:
            raise self.error

    def _after(self, parsed: dict[str, Any], **_: object) -> None:
        for one in parsed.get("Contents", []):
            one["LastModified"] = self._at(self.times[one["Key"]]).replace(microsecond=0)
        headers = parsed["ResponseMetadata"]["HTTPHeaders"]
        headers.pop("date")
        if self.sends_date:
            headers["date"] = format_datetime(self._at(self.now).astimezone(timezone.utc), usegmt=True)

    def _at(self, seconds: float) -> datetime:
        return self.began + timedelta(seconds=seconds + self.skew)

    def put(self, name: str, when: float | None = None) -> None:
        self.times[f"kept/sleeps/{name}"] = self.now if when is None else when
        self.cloud.s3.put_object(Bucket=BUCKET, Key=f"kept/sleeps/{name}", Body=b"x" * 10)

    def delete(self, name: str) -> None:
        self.cloud.s3.delete_object(Bucket=BUCKET, Key=f"kept/sleeps/{name}")

    def advance_to(self, until: float) -> list[tuple[float, CheckpointEvent]]:
        """Poll every minute until then. Return the events and their times."""
        events: list[tuple[float, CheckpointEvent]] = []
        while self.now < until:
            self.now = min(until, self.now + MINUTE)
            seen = self.follower.poll() if self.is_followed else self.watch.poll(self.job)
            events += [(self.now, one) for one in seen if isinstance(one, CheckpointEvent)]
        return events


@pytest.fixture
def make_scenario(cloud: Cloud) -> Iterator[Callable[..., Scenario]]:
    def make(**changes: Any) -> Scenario:
        endpoint = cloud.endpoint
        clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
        return Scenario(cloud, clients, **changes)

    yield make
    for key in cloud.keys("kept/sleeps/"):
        cloud.s3.delete_object(Bucket=BUCKET, Key=key)


def save_every(scenario: Scenario, period: float, count: int) -> None:
    """Save checkpoints of two files each and keep the two newest. There is no event."""
    first = scenario.now
    for number in range(1, count + 1):
        assert scenario.advance_to(first + number * period) == []
        scenario.put(f"{number}.pt")
        scenario.put("LATEST")
        if number > 2:
            scenario.delete(f"{number - 2}.pt")


@pytest.mark.runs
def test_stall_and_its_end_are_each_reported_once(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario(is_followed=True)
    save_every(scenario, 10 * MINUTE, 6)
    ((when, stalled),) = scenario.advance_to(5 * HOUR)
    assert HOUR + 30 * MINUTE < when <= HOUR + 32 * MINUTE
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.where, stalled.newest, stalled.files, stalled.size) == (WHERE, "LATEST", 3, 30)
    assert (stalled.longest, stalled.limit) == (pytest.approx(10 * MINUTE, abs=1), pytest.approx(30 * MINUTE, abs=3))
    assert stalled.lasted == pytest.approx(when - HOUR, abs=2)
    assert stalled.time_ms / 1000 == pytest.approx(scenario.began.timestamp() + HOUR, abs=1)
    scenario.put("7.pt")
    ((_, kept),) = scenario.advance_to(5 * HOUR + 20 * MINUTE)
    assert isinstance(kept, CheckpointKept)
    assert (kept.newest, kept.files, kept.lasted) == ("7.pt", 4, pytest.approx(4 * HOUR, abs=2))
    ((again, _),) = scenario.advance_to(8 * HOUR)
    assert again == pytest.approx(6.5 * HOUR, abs=2 * MINUTE)


def test_no_checkpoint_is_reported_after_half_an_hour(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario()
    ((when, stalled),) = scenario.advance_to(3 * HOUR)
    assert 30 * MINUTE < when <= 32 * MINUTE
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.files, stalled.longest) == (None, 0, None)


def test_single_checkpoint_is_followed_by_a_stall(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario()
    scenario.now = 20 * MINUTE
    scenario.put("only.pt")
    ((when, stalled),) = scenario.advance_to(5 * HOUR)
    assert when == pytest.approx(20 * MINUTE + HOUR, abs=2 * MINUTE)
    assert isinstance(stalled, CheckpointsStalled)
    assert stalled.newest == "only.pt"


def test_checkpoints_of_earlier_job_do_not_count(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario()
    for number in range(5):
        scenario.put(f"old-{number}", -24 * HOUR + number * 600)
    ((when, stalled),) = scenario.advance_to(HOUR)
    assert 30 * MINUTE < when <= 32 * MINUTE
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.files) == (None, 5)
    scenario.put("new.pt")
    ((_, kept),) = scenario.advance_to(HOUR + 2 * MINUTE)
    assert isinstance(kept, CheckpointKept)
    assert kept.newest == "new.pt"


def test_replaced_file_counts_as_new(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario()
    for _ in range(20):
        scenario.put("model.pt")
        assert scenario.advance_to(scenario.now + 10 * MINUTE) == []


def test_deleted_files_neither_count_as_new_nor_hide_a_stall(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario()
    save_every(scenario, 10 * MINUTE, 5)
    for name in ("5.pt", "LATEST"):
        assert scenario.advance_to(scenario.now + 5 * MINUTE) == []
        scenario.delete(name)
    ((when, stalled),) = scenario.advance_to(3 * HOUR)
    assert when == pytest.approx(80 * MINUTE, abs=2 * MINUTE)
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.files) == ("LATEST", 1)


def test_late_follower_gets_interval_from_existing_files(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario(now=4 * HOUR)
    for number in range(1, 7):
        scenario.put(f"{number}.pt", number * 15 * MINUTE)
    ((when, stalled),) = scenario.advance_to(4 * HOUR + 3 * MINUTE)
    assert when <= 4 * HOUR + 90
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.longest) == ("6.pt", pytest.approx(15 * MINUTE, abs=1))


@pytest.mark.runs
@pytest.mark.parametrize("origin", [-1e6, 1e9])
def test_local_clock_does_not_matter(make_scenario: Callable[..., Scenario], origin: float) -> None:
    """The watch does not read the local time of day, and the monotonic clock may start anywhere."""
    scenario = make_scenario()
    scenario.watch.clock = lambda: scenario.now + origin
    scenario.watch._due = origin
    save_every(scenario, 10 * MINUTE, 4)
    ((when, _),) = scenario.advance_to(3 * HOUR)
    assert when == pytest.approx(70 * MINUTE, abs=2 * MINUTE)


@pytest.mark.runs
@pytest.mark.parametrize("skew", [-120.0, 120.0])
def test_clock_skew_of_s3_only_shifts_the_start(make_scenario: Callable[..., Scenario], skew: float) -> None:
    scenario = make_scenario(skew=skew)
    save_every(scenario, 10 * MINUTE, 5)
    ((when, _),) = scenario.advance_to(3 * HOUR)
    assert when == pytest.approx(80 * MINUTE, abs=2 * MINUTE)


def test_service_without_date_is_measured_by_local_clock(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario(sends_date=False)
    save_every(scenario, 10 * MINUTE, 5)
    ((when, _),) = scenario.advance_to(3 * HOUR)
    assert when == pytest.approx(80 * MINUTE, abs=2 * MINUTE)


def test_bucket_is_listed_each_minute_and_less_often_with_many_files(
    make_scenario: Callable[..., Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = make_scenario()
    scenario.advance_to(HOUR)
    assert scenario.listings == 60
    pages = replace(list_checkpoints(scenario.clients.s3, WHERE), pages=4)
    monkeypatch.setattr("smdp_launch.jobs.checkpoints.watch.list_checkpoints", lambda *_: pages)
    asked: list[float] = []
    scenario.watch.start = lambda work: (asked.append(scenario.now), work())
    scenario.advance_to(2 * HOUR)
    gaps = [after - before for before, after in pairwise(asked[1:])]
    assert set(gaps) == {4 * MINUTE}
    pages = replace(pages, pages=100)
    scenario.advance_to(5 * HOUR)
    assert asked[-1] - asked[-2] == 10 * MINUTE


def test_refused_listing_is_reported_once_and_follower_continues(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario(is_followed=True)
    scenario.error = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListObjectsV2")
    assert [one for _, one in scenario.advance_to(HOUR)] == [CheckpointsUnseen(WHERE, "AccessDenied: no")]
    assert scenario.listings <= 7
    scenario.error = None
    ((_, event),) = scenario.advance_to(1.5 * HOUR)
    assert isinstance(event, CheckpointsStalled)


def test_outage_is_reported_when_it_could_hide_a_stall(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario()
    save_every(scenario, 10 * MINUTE, 5)
    scenario.error = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    assert scenario.advance_to(58 * MINUTE) == []
    scenario.error = None
    scenario.put("6.pt")
    assert scenario.advance_to(62 * MINUTE) == []
    scenario.error = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    ((_, event),) = scenario.advance_to(2 * HOUR)
    assert isinstance(event, CheckpointsUnseen)
    assert "127.0.0.1:1" in event.reason


def test_internal_error_in_listing_does_not_end_follower(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario()
    scenario.error = KeyError("Contents")
    ((_, event),) = scenario.advance_to(HOUR)
    assert isinstance(event, CheckpointsUnseen)


def test_interruption_of_job_is_no_stall(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario()
    save_every(scenario, 5 * MINUTE, 10)
    found = scenario.job
    away = replace(found, secondary="Interrupted")
    scenario.now += 5 * HOUR
    listings = scenario.listings
    assert list(scenario.watch.poll(away)) == []
    assert scenario.listings == listings
    back = Step("Training", "", scenario.began + timedelta(seconds=scenario.now), 0.0)
    again = replace(found, steps=(*found.steps, back))
    began = scenario.now
    for minutes in range(29):
        scenario.now = began + minutes * MINUTE
        assert list(scenario.watch.poll(again)) == []
    scenario.put("after.pt")
    scenario.now += MINUTE
    assert list(scenario.watch.poll(again)) == []
    scenario.now += 14 * MINUTE
    assert list(scenario.watch.poll(again)) == []
    scenario.now += 2 * MINUTE
    (stalled,) = scenario.watch.poll(again)
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.limit) == ("after.pt", pytest.approx(15 * MINUTE, abs=3))


def test_listing_from_before_an_interruption_is_discarded(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario()
    works: list[Callable[[], None]] = []
    scenario.watch.start = works.append
    found = scenario.job
    assert list(scenario.watch.poll(found)) == []
    scenario.now += 5 * HOUR
    works.pop()()  # its result is 5 h without a checkpoint
    back = Step("Training", "", scenario.began + timedelta(seconds=scenario.now), 0.0)
    assert list(scenario.watch.poll(replace(found, steps=(*found.steps, back)))) == []


def test_missing_thread_is_reported(cloud: Cloud, make_scenario: Callable[..., Scenario]) -> None:
    def fail(_: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    scenario = make_scenario()
    scenario.watch.start = fail
    ((_, event),) = scenario.advance_to(MINUTE)
    assert event == CheckpointsUnseen(WHERE, "can't start new thread")


def test_no_thread_is_left(cloud: Cloud) -> None:
    wait_for(lambda: threading.active_count() == 1, "the threads' ends")
