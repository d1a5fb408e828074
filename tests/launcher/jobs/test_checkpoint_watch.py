"""Whoever follows a job is told when its checkpoints stop coming to S3, once, and when they come again."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import pairwise
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.cli.render.events import EventView
from smdp_launch.jobs.checkpoints.listing import list_checkpoints
from smdp_launch.jobs.checkpoints.watch import (
    CheckpointKept,
    CheckpointNews,
    CheckpointsStalled,
    CheckpointsUnseen,
    CheckpointWatch,
    Rhythm,
    Silence,
    Steps,
)
from smdp_launch.jobs.follow import Ended, Follower, Seen
from smdp_launch.jobs.logs.messages import LogLine
from smdp_launch.jobs.service.clients import Clients, connect_endpoint
from smdp_launch.jobs.status.description import Step, describe
from tests.launcher.cli.test_json_documents import validator
from tests.launcher.jobs.test_silent_service import Silent, clients_of
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.services.faults import Proxy
from tests.support.services.faulty_service import clients_through, cloud_with_data
from tests.support.waiting import wait_for

ZERO = datetime(2026, 11, 21, tzinfo=timezone.utc)
WHERE = f"s3://{BUCKET}/kept/sleeps"
MINUTE, HOUR = 60.0, 3600.0
News = CheckpointsStalled | CheckpointKept | CheckpointsUnseen
#: Reports a step each 0.1 s; saves for two seconds, until it is let go, and once more.
STOPS_SAVING = """
import json, os, time
out, folder = os.environ["SM_OUTPUT_DATA_DIR"], os.environ["SMDP_CHECKPOINT_DIR"]
def report(step):
    print(json.dumps({"smdp_event": 1, "event": "step", "step": step, "steps": 100000}), flush=True)
def save(step):
    with open(os.path.join(folder, f"step-{step}"), "w") as file:
        file.write("x" * 10)
step, began = 0, time.monotonic()
while not os.path.exists(os.path.join(out, "go")):
    step += 1
    report(step)
    if began is not None and time.monotonic() >= began + 2:
        print("saved enough", flush=True)
        began = None
    elif began is not None:
        save(step)
    time.sleep(0.1)
save(step)
while not os.path.exists(os.path.join(out, "end")):
    time.sleep(0.1)
"""


def at(seconds: float) -> datetime:
    return ZERO + timedelta(seconds=seconds)


# What a rhythm is.


def rhythm_of(*times: float, silence: Silence | None = None) -> Rhythm:
    rhythm = Rhythm(silence or Silence())
    rhythm.begin(ZERO)
    rhythm.learn([at(one) for one in times])
    return rhythm


def test_until_a_rhythm_is_known_half_an_hour_is_a_silence() -> None:
    assert rhythm_of().limit == 30 * MINUTE
    assert rhythm_of(5).limit == 30 * MINUTE
    assert rhythm_of(5, 5 * MINUTE, 10 * MINUTE).limit == 30 * MINUTE


def test_a_first_checkpoint_that_took_long_lets_the_second_take_long() -> None:
    assert rhythm_of(2 * HOUR).limit == 6 * HOUR


def test_a_known_rhythm_is_three_times_its_longest_gap_and_ten_minutes_at_least() -> None:
    quarters = [one * 15 * MINUTE for one in range(1, 6)]
    assert rhythm_of(*quarters).limit == 45 * MINUTE
    assert rhythm_of(*quarters, quarters[-1] + 20 * MINUTE).limit == HOUR
    assert rhythm_of(*(one * 30.0 for one in range(100))).limit == 10 * MINUTE


def test_what_it_took_until_the_first_is_no_gap_of_the_rhythm() -> None:
    assert rhythm_of(*(HOUR + one * 5 * MINUTE for one in range(8))).limit == 15 * MINUTE


def test_a_silence_that_was_told_does_not_become_the_rhythm_at_once() -> None:
    rhythm = rhythm_of(*(one * 10 * MINUTE for one in range(1, 6)))
    assert rhythm.limit == 30 * MINUTE
    rhythm.learn([at(50 * MINUTE + 10 * HOUR)], was_told=True)
    assert rhythm.limit == 90 * MINUTE


def test_after_an_interruption_the_first_may_take_as_long_as_any_first() -> None:
    rhythm = rhythm_of(*(one * 5 * MINUTE for one in range(1, 10)))
    assert rhythm.limit == 15 * MINUTE
    assert rhythm.begin(at(5 * HOUR))
    assert (rhythm.since, rhythm.limit) == (at(5 * HOUR), 30 * MINUTE)
    rhythm.learn([at(5 * HOUR + 60)])
    assert rhythm.limit == 15 * MINUTE


seconds = st.lists(st.integers(0, 100_000), max_size=30)


@given(seconds, st.lists(st.integers(0, 30)), st.randoms())
def test_neither_order_nor_repetition_nor_the_looks_between_change_a_rhythm(
    times: list[int], cuts: list[int], chance: Any
) -> None:
    whole, parts = rhythm_of(*times), rhythm_of()
    ordered = sorted(times)
    for cut in sorted(cuts):
        seen = ordered[:cut]
        chance.shuffle(seen)
        parts.learn([at(one) for one in seen])
    parts.learn([at(one) for one in ordered])
    assert (parts.limit, parts.since, parts.is_known) == (whole.limit, whole.since, whole.is_known)


@given(st.integers(1, 40), st.integers(60, 7200), st.lists(st.integers(1, 50), max_size=8))
def test_the_files_of_one_checkpoint_are_no_rhythm(count: int, period: int, burst: list[int]) -> None:
    """Its limit is that of one file a checkpoint, or a burst's length short of it."""
    alone = [period * one for one in range(1, count + 1)]
    together = [one + late for one in alone for late in [0, *burst]]
    # The rhythm of one is believed a burst's length sooner at most.
    if rhythm_of(*alone).is_known:
        assert 0 <= rhythm_of(*alone).limit - rhythm_of(*together).limit <= 3 * max(burst, default=0)


@given(st.integers(1, 3 * 3600), st.integers(1, 30))
def test_a_steady_job_is_never_in_silence_once_two_have_come(period: int, count: int) -> None:
    rhythm = rhythm_of(period)
    for one in range(2, count + 2):
        assert rhythm.limit > period
        rhythm.learn([at(period * one)])


# Steps.


def test_the_steps_of_days_are_thinned_and_tell_the_last_by_a_time() -> None:
    steps = Steps(most=64)
    for step in range(1, 10_001):
        steps.note(step * 1000, step)
    assert steps.now == 10_000
    then = steps.at(5_000_500)
    assert then is not None
    assert 5000 - 2 * 10_000 // 64 <= then <= 5000
    steps.forget(9_999_999)
    assert (steps.at(5_000_500), steps.now) == (None, 10_000)


@pytest.mark.parametrize("step", [None, True, -1, 1.5, "3", 10**400])
def test_what_is_no_step_is_none(step: object) -> None:
    steps = Steps()
    steps.note(1, step)
    assert steps.now is None


# The watch, in a follower of a real job.


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("watch") / "state") as made:
        long = {"MaxRuntimeInSeconds": 3600}
        config = {"S3Uri": WHERE}
        made.start("sleeps", "import time\ntime.sleep(3000)\n", CheckpointConfig=config, StoppingCondition=long)
        wait_for(lambda: made.describe("sleeps")["SecondaryStatus"] == "Training", "training")
        yield made
        made.sagemaker.stop_training_job(TrainingJobName="sleeps")
        made.wait("sleeps")


@dataclass
class Story:
    """Objects that come and go at ``now``, seconds after the training began, in a bucket that tells those times; and
    a watch whose clock it is, in a follower of the job or, as that asks for more than is looked at here, alone."""

    cloud: Cloud
    clients: Clients
    is_followed: bool = False
    now: float = 0.0
    skew: float = 0.0  # of S3's clock, against all others
    tells_time: bool = True
    looks: int = 0
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.times: dict[str, float] = {}
        self.job = describe(self.clients, "sleeps")
        self.began = next(one.began for one in self.job.steps if one.status == "Training")
        self.clients.s3.meta.events.register("before-call.s3.ListObjectsV2", self._ask)
        self.clients.s3.meta.events.register("after-call.s3.ListObjectsV2", self._answer)
        self.watch = CheckpointWatch(self.clients, Silence(), lambda: self.now, lambda work: work())
        self.follower = Follower(self.clients, "sleeps", clock=lambda: self.now, watch=self.watch)

    def _ask(self, **_: object) -> None:
        self.looks += 1
        if self.error is not None:
            raise self.error

    def _answer(self, parsed: dict[str, Any], **_: object) -> None:
        for one in parsed.get("Contents", []):
            one["LastModified"] = self._at(self.times[one["Key"]]).replace(microsecond=0)
        headers = parsed["ResponseMetadata"]["HTTPHeaders"]
        headers.pop("date")
        if self.tells_time:
            headers["date"] = format_datetime(self._at(self.now).astimezone(timezone.utc), usegmt=True)

    def _at(self, seconds: float) -> datetime:
        return self.began + timedelta(seconds=seconds + self.skew)

    def put(self, name: str, when: float | None = None) -> None:
        self.times[f"kept/sleeps/{name}"] = self.now if when is None else when
        self.cloud.s3.put_object(Bucket=BUCKET, Key=f"kept/sleeps/{name}", Body=b"x" * 10)

    def delete(self, name: str) -> None:
        self.cloud.s3.delete_object(Bucket=BUCKET, Key=f"kept/sleeps/{name}")

    def pass_to(self, until: float) -> list[tuple[float, CheckpointNews]]:
        """Look every minute; what is told on the way, and when."""
        told: list[tuple[float, CheckpointNews]] = []
        while self.now < until:
            self.now = min(until, self.now + MINUTE)
            seen = self.follower.look() if self.is_followed else self.watch.look(self.job)
            told += [(self.now, one) for one in seen if isinstance(one, News)]
        return told


@pytest.fixture
def story(cloud: Cloud) -> Iterator[Callable[..., Story]]:
    def make(**changes: Any) -> Story:
        endpoint = cloud.endpoint
        clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
        return Story(cloud, clients, **changes)

    yield make
    for key in cloud.keys("kept/sleeps/"):
        cloud.s3.delete_object(Bucket=BUCKET, Key=key)


def every(story: Story, period: float, count: int) -> None:
    """Checkpoints of two files each, the two newest of which stay; none is told of."""
    first = story.now
    for number in range(1, count + 1):
        assert story.pass_to(first + number * period) == []
        story.put(f"{number}.pt")
        story.put("LATEST")
        if number > 2:
            story.delete(f"{number - 2}.pt")


@pytest.mark.runs
def test_a_silence_is_told_once_and_so_is_its_end(story: Callable[..., Story]) -> None:
    made = story(is_followed=True)
    every(made, 10 * MINUTE, 6)
    ((when, stalled),) = made.pass_to(5 * HOUR)
    assert HOUR + 30 * MINUTE < when <= HOUR + 32 * MINUTE
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.where, stalled.newest, stalled.files, stalled.size) == (WHERE, "LATEST", 3, 30)
    assert (stalled.longest, stalled.limit) == (pytest.approx(10 * MINUTE, abs=1), pytest.approx(30 * MINUTE, abs=3))
    assert stalled.lasted == pytest.approx(when - HOUR, abs=2)
    assert stalled.time_ms / 1000 == pytest.approx(made.began.timestamp() + HOUR, abs=1)
    made.put("7.pt")
    ((_, kept),) = made.pass_to(5 * HOUR + 20 * MINUTE)
    assert isinstance(kept, CheckpointKept)
    assert (kept.newest, kept.files, kept.lasted) == ("7.pt", 4, pytest.approx(4 * HOUR, abs=2))
    ((again, _),) = made.pass_to(8 * HOUR)
    assert again == pytest.approx(6.5 * HOUR, abs=2 * MINUTE)


def test_none_at_all_is_told_after_half_an_hour_of_training(story: Callable[..., Story]) -> None:
    made = story()
    ((when, stalled),) = made.pass_to(3 * HOUR)
    assert 30 * MINUTE < when <= 32 * MINUTE
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.files, stalled.longest) == (None, 0, None)


def test_one_single_checkpoint_ever(story: Callable[..., Story]) -> None:
    made = story()
    made.now = 20 * MINUTE
    made.put("only.pt")
    ((when, stalled),) = made.pass_to(5 * HOUR)
    assert when == pytest.approx(20 * MINUTE + HOUR, abs=2 * MINUTE)
    assert isinstance(stalled, CheckpointsStalled)
    assert stalled.newest == "only.pt"


def test_the_checkpoints_of_an_earlier_job_are_none_of_this_one(story: Callable[..., Story]) -> None:
    made = story()
    for number in range(5):
        made.put(f"old-{number}", -24 * HOUR + number * 600)
    ((when, stalled),) = made.pass_to(HOUR)
    assert 30 * MINUTE < when <= 32 * MINUTE
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.files) == (None, 5)
    made.put("new.pt")
    ((_, kept),) = made.pass_to(HOUR + 2 * MINUTE)
    assert isinstance(kept, CheckpointKept)
    assert kept.newest == "new.pt"


def test_a_file_that_is_replaced_is_a_new_one(story: Callable[..., Story]) -> None:
    made = story()
    for _ in range(20):
        made.put("model.pt")
        assert made.pass_to(made.now + 10 * MINUTE) == []


def test_files_that_go_neither_come_nor_hide_that_none_comes(story: Callable[..., Story]) -> None:
    made = story()
    every(made, 10 * MINUTE, 5)
    for name in ("5.pt", "LATEST"):
        assert made.pass_to(made.now + 5 * MINUTE) == []
        made.delete(name)
    ((when, stalled),) = made.pass_to(3 * HOUR)
    assert when == pytest.approx(80 * MINUTE, abs=2 * MINUTE)
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.files) == ("LATEST", 1)


def test_who_comes_late_learns_the_rhythm_from_what_lies_there(story: Callable[..., Story]) -> None:
    made = story(now=4 * HOUR)
    for number in range(1, 7):
        made.put(f"{number}.pt", number * 15 * MINUTE)
    ((when, stalled),) = made.pass_to(4 * HOUR + 3 * MINUTE)
    assert when <= 4 * HOUR + 90
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.longest) == ("6.pt", pytest.approx(15 * MINUTE, abs=1))


@pytest.mark.runs
@pytest.mark.parametrize("origin", [-1e6, 1e9])
def test_the_clock_of_this_machine_does_not_come_into_it(story: Callable[..., Story], origin: float) -> None:
    """Its calendar is never asked, and that of its clock which never goes back begins anywhere."""
    made = story()
    made.watch.clock = lambda: made.now + origin
    made.watch._due = origin
    every(made, 10 * MINUTE, 4)
    ((when, _),) = made.pass_to(3 * HOUR)
    assert when == pytest.approx(70 * MINUTE, abs=2 * MINUTE)


@pytest.mark.runs
@pytest.mark.parametrize("skew", [-120.0, 120.0])
def test_a_storage_service_that_is_two_minutes_off_only_shifts_the_beginning(
    story: Callable[..., Story], skew: float
) -> None:
    made = story(skew=skew)
    every(made, 10 * MINUTE, 5)
    ((when, _),) = made.pass_to(3 * HOUR)
    assert when == pytest.approx(80 * MINUTE, abs=2 * MINUTE)


def test_a_service_that_does_not_tell_its_time_is_watched_by_ours(story: Callable[..., Story]) -> None:
    made = story(tells_time=False)
    every(made, 10 * MINUTE, 5)
    ((when, _),) = made.pass_to(3 * HOUR)
    assert when == pytest.approx(80 * MINUTE, abs=2 * MINUTE)


def test_the_bucket_is_asked_once_a_minute_and_less_where_the_listing_is_long(
    story: Callable[..., Story], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = story()
    made.pass_to(HOUR)
    assert made.looks == 60
    pages = replace(list_checkpoints(made.clients.s3, WHERE), pages=4)
    monkeypatch.setattr("smdp_launch.jobs.checkpoints.watch.list_checkpoints", lambda *_: pages)
    asked: list[float] = []
    made.watch.start = lambda work: (asked.append(made.now), work())
    made.pass_to(2 * HOUR)
    gaps = [after - before for before, after in pairwise(asked[1:])]
    assert set(gaps) == {4 * MINUTE}
    pages = replace(pages, pages=100)
    made.pass_to(5 * HOUR)
    assert asked[-1] - asked[-2] == 10 * MINUTE


def test_a_refusal_is_told_once_and_the_following_goes_on(story: Callable[..., Story]) -> None:
    made = story(is_followed=True)
    made.error = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListObjectsV2")
    assert [one for _, one in made.pass_to(HOUR)] == [CheckpointsUnseen(WHERE, "AccessDenied: no")]
    assert made.looks <= 7
    made.error = None
    ((_, told),) = made.pass_to(1.5 * HOUR)
    assert isinstance(told, CheckpointsStalled)


def test_an_outage_is_told_when_it_hides_what_would_be_a_silence(story: Callable[..., Story]) -> None:
    made = story()
    every(made, 10 * MINUTE, 5)
    made.error = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    assert made.pass_to(58 * MINUTE) == []
    made.error = None
    made.put("6.pt")
    assert made.pass_to(62 * MINUTE) == []
    made.error = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    ((_, told),) = made.pass_to(2 * HOUR)
    assert isinstance(told, CheckpointsUnseen)
    assert "127.0.0.1:1" in told.reason


def test_even_a_mistake_of_ours_in_the_listing_leaves_the_following_alone(story: Callable[..., Story]) -> None:
    made = story()
    made.error = KeyError("Contents")
    ((_, told),) = made.pass_to(HOUR)
    assert isinstance(told, CheckpointsUnseen)


def test_an_interruption_of_the_job_is_nobodys_silence(story: Callable[..., Story]) -> None:
    made = story()
    every(made, 5 * MINUTE, 10)
    found = made.job
    away = replace(found, secondary="Interrupted")
    made.now += 5 * HOUR
    looks = made.looks
    assert list(made.watch.look(away)) == []
    assert made.looks == looks
    back = Step("Training", "", made.began + timedelta(seconds=made.now), 0.0)
    again = replace(found, steps=(*found.steps, back))
    began = made.now
    for minutes in range(29):
        made.now = began + minutes * MINUTE
        assert list(made.watch.look(again)) == []
    made.put("after.pt")
    made.now += MINUTE
    assert list(made.watch.look(again)) == []
    made.now += 14 * MINUTE
    assert list(made.watch.look(again)) == []
    made.now += 2 * MINUTE
    (stalled,) = made.watch.look(again)
    assert isinstance(stalled, CheckpointsStalled)
    assert (stalled.newest, stalled.limit) == ("after.pt", pytest.approx(15 * MINUTE, abs=3))


def test_a_look_from_before_an_interruption_is_no_look(story: Callable[..., Story]) -> None:
    made = story()
    works: list[Callable[[], None]] = []
    made.watch.start = works.append
    found = made.job
    assert list(made.watch.look(found)) == []
    made.now += 5 * HOUR
    works.pop()()  # what it tells is of 5 h without a checkpoint
    back = Step("Training", "", made.began + timedelta(seconds=made.now), 0.0)
    assert list(made.watch.look(replace(found, steps=(*found.steps, back)))) == []


def test_a_job_without_checkpoints_costs_no_call(cloud: Cloud) -> None:
    cloud.start("without", "print('trained')\n")
    calls: list[str] = []
    with Proxy(lambda operation, _: calls.append(operation)).running() as proxy:
        list(follow(clients_through(proxy, cloud), "without"))
    assert "DescribeTrainingJob" in calls
    assert calls.count("GET") == 1  # whether S3 has the model, when the job has ended


def follow(clients: Clients, job: str, watch: CheckpointWatch | None = None) -> Iterator[Seen]:
    follower = Follower(clients, job, 120, watch=watch)
    while True:
        for one in follower.look():
            yield one
            if isinstance(one, Ended):
                return
        clients.interrupted.wait(follower.pause)


def test_a_script_that_stops_saving_while_it_trains_is_told_of_with_its_steps(cloud: Cloud) -> None:
    """With the thread, the clocks and the checkpoint sync as they are."""
    where = f"s3://{BUCKET}/kept/stops"
    cloud.start("stops", STOPS_SAVING, CheckpointConfig={"S3Uri": where})
    ml = cloud.state_dir / "jobs" / "stops" / "hosts" / "algo-1" / "ml"
    out = ml / "output" / "data"
    # A busy machine may need longer to start the script, or to upload its files, than a silence lasts here.
    cloud.await_log("stops", "saved enough")
    wait_for(lambda: len(cloud.keys("kept/stops/")) == len(list((ml / "checkpoints").iterdir())), "the upload")
    uploaded_by = sum('"event": "step"' in line for line in cloud.log("stops"))
    endpoint = cloud.endpoint
    clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
    silence = Silence(interval=0.5, longest_interval=0.5, unknown=4.0, shortest=4.0, factor=3.0)
    seen: list[Seen] = []
    for one in follow(clients, "stops", CheckpointWatch(clients, silence)):
        seen.append(one)
        if isinstance(one, CheckpointsStalled) and one.newest is not None:
            (out / "go").touch()
        elif isinstance(one, CheckpointKept):
            (out / "end").touch()
    news = [one for one in seen if isinstance(one, News)]
    assert [type(one) for one in news] == [CheckpointsStalled, CheckpointKept], news
    stalled, kept = news
    assert isinstance(stalled, CheckpointsStalled)
    assert isinstance(kept, CheckpointKept)
    assert stalled.lasted > 4.0
    assert stalled.newest is not None
    saved = int(stalled.newest.removeprefix("step-"))
    assert stalled.step_then is not None
    assert stalled.step_now is not None
    # The time of a file is that of its upload, in whole seconds.
    assert saved - 12 <= stalled.step_then <= uploaded_by + 12
    assert stalled.step_then + 20 < stalled.step_now
    assert kept.files == stalled.files + 1
    assert kept.lasted >= stalled.lasted - 1


def test_a_bucket_that_does_not_answer_holds_no_line_back(cloud: Cloud) -> None:
    with ExitStack() as stack:
        silent = stack.enter_context(Silent().listening())
        endpoint = cloud.endpoint
        clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
        unheard = clients_of(silent.url)
        clients.s3, clients.quick = unheard.s3, unheard.quick
        script = """
            import os, time
            while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
                time.sleep(0.05)
            print("trained", flush=True)
        """
        cloud.start("unheard", script, CheckpointConfig={"S3Uri": WHERE})
        # The bucket is asked while the job trains, and has not answered when the job ends.
        asks = threading.Thread(target=lambda: silent.asked.wait(100) and (cloud.output("unheard") / "go").touch())
        asks.start()
        seen = list(follow(clients, "unheard"))
        asks.join()
    assert "trained" in [one.text for one in seen if isinstance(one, LogLine)]
    assert isinstance(seen[-1], Ended)


def test_a_machine_without_a_thread_left_says_so(cloud: Cloud, story: Callable[..., Story]) -> None:
    def fail(_: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    made = story()
    made.watch.start = fail
    ((_, told),) = made.pass_to(MINUTE)
    assert told == CheckpointsUnseen(WHERE, "can't start new thread")


def test_what_is_listed_are_the_files_below_the_prefix(cloud: Cloud) -> None:
    for key in ("kept/a/x", "kept/a/y/z", "kept/a/", "kept/a/y/", "kept/ab"):
        cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=b"123")
    found = list_checkpoints(cloud.s3, f"s3://{BUCKET}/kept/a/")
    assert found.checkpoints is not None
    assert (found.checkpoints.files, found.checkpoints.size, found.pages) == (2, 6, 1)
    assert found.checkpoints.name in ("x", "y/z")
    assert found.at is not None
    assert abs((found.at - found.checkpoints.newest).total_seconds()) < 60
    assert list_checkpoints(cloud.s3, f"s3://{BUCKET}/kept/none").checkpoints is None


NEWS = [
    CheckpointsStalled(WHERE, 1_763_683_200_000, 4000.0, 2700.0, 900.0, "step-1200.pt", 24, 12_345_678, 1200, 4800),
    CheckpointsStalled(WHERE, 1_763_683_200_000, 1830.0, 1800.0, None, None, 0, 0, None, None),
    CheckpointKept(WHERE, 1_763_683_200_000, 4200.0, "step-4900.pt", 25, 12_345_678),
    CheckpointsUnseen(WHERE, "AccessDenied: Access Denied"),
]


@pytest.mark.parametrize("news", NEWS, ids=lambda one: type(one).__name__)
def test_a_program_is_told_as_the_schema_says(news: News, capsys: pytest.CaptureFixture[str]) -> None:
    with EventView("sleeps", "local", created=True) as view:
        view.show(news)
    job, told = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert job["seen"] == "job"
    validator("follow").validate(told)
    assert told["location"] == WHERE


def test_no_thread_is_left(cloud: Cloud) -> None:
    wait_for(lambda: threading.active_count() == 1, "the threads' ends")
