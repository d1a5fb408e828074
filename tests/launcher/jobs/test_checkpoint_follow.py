"""The checkpoint watch in a follower of a real job: its events, and lines that it must not delay."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from smdp_launch.cli.render.job.events import EventView
from smdp_launch.jobs.checkpoints.intervals import StallThresholds
from smdp_launch.jobs.checkpoints.listing import list_checkpoints
from smdp_launch.jobs.checkpoints.watch import (
    CheckpointEvent,
    CheckpointKept,
    CheckpointsStalled,
    CheckpointsUnseen,
    CheckpointWatch,
)
from smdp_launch.jobs.follow import Ended, Follower, FollowEvent
from smdp_launch.jobs.logs.messages import LogLine
from smdp_launch.jobs.service.clients import Clients, connect_endpoint
from tests.support.json_documents import validator
from tests.support.services.cloud import BUCKET, Cloud
from tests.support.services.faults import Proxy
from tests.support.services.faulty_service import clients_through, cloud_with_data
from tests.support.services.silent import Silent, clients_of
from tests.support.waiting import wait_for

WHERE = f"s3://{BUCKET}/kept/sleeps"
#: Reports a step each 0.1 s; saves for two seconds, waits for a file, and saves once more.
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


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("follow") / "state") as made:
        yield made


def test_job_without_checkpoints_costs_no_call(cloud: Cloud) -> None:
    cloud.start("without", "print('trained')\n")
    calls: list[str] = []
    with Proxy(lambda operation, _: calls.append(operation)).running() as proxy:
        list(follow(clients_through(proxy, cloud), "without"))
    assert "DescribeTrainingJob" in calls
    assert calls.count("GET") == 1  # whether S3 has the model, when the job has ended


def follow(clients: Clients, job: str, watch: CheckpointWatch | None = None) -> Iterator[FollowEvent]:
    return Follower(clients, job, 120, watch=watch).events()


@pytest.mark.runs
def test_script_that_stops_saving_is_reported_with_its_steps(cloud: Cloud) -> None:
    """With the real thread, clocks and checkpoint uploads."""
    where = f"s3://{BUCKET}/kept/stops"
    cloud.start("stops", STOPS_SAVING, CheckpointConfig={"S3Uri": where})
    ml = cloud.state_dir / "jobs" / "stops" / "hosts" / "algo-1" / "ml"
    out = ml / "output" / "data"
    # A busy machine may need longer to start the script, or to upload its files, than a stall lasts in this test.
    cloud.await_log("stops", "saved enough")
    wait_for(lambda: len(cloud.keys("kept/stops/")) == len(list((ml / "checkpoints").iterdir())), "the upload")
    uploaded_by = sum('"event": "step"' in line for line in cloud.log("stops"))
    endpoint = cloud.endpoint
    clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
    thresholds = StallThresholds(interval=0.5, longest_interval=0.5, unknown=4.0, shortest=4.0, factor=3.0)
    seen: list[FollowEvent] = []
    for one in follow(clients, "stops", CheckpointWatch(clients, thresholds)):
        seen.append(one)
        if isinstance(one, CheckpointsStalled) and one.newest is not None:
            (out / "go").touch()
        elif isinstance(one, CheckpointKept):
            (out / "end").touch()
    news = [one for one in seen if isinstance(one, CheckpointEvent)]
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


def test_unresponsive_bucket_delays_no_line(cloud: Cloud) -> None:
    with ExitStack() as stack:
        silent = stack.enter_context(Silent().listening())
        endpoint = cloud.endpoint
        clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
        clients.s3 = clients_of(silent.url).s3
        script = """
            import os, time
            while not os.path.exists(os.environ["SM_OUTPUT_DIR"] + "/go"):
                time.sleep(0.05)
            print("trained", flush=True)
        """
        cloud.start("unanswered", script, CheckpointConfig={"S3Uri": WHERE})
        # The listing starts while the job trains, and has no answer when the job ends.
        asks = threading.Thread(target=lambda: silent.asked.wait(100) and (cloud.output("unanswered") / "go").touch())
        asks.start()
        seen = list(follow(clients, "unanswered"))
        asks.join()
    assert "trained" in [one.text for one in seen if isinstance(one, LogLine)]
    assert isinstance(seen[-1], Ended)


def test_listing_has_only_files_below_the_prefix(cloud: Cloud) -> None:
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
def test_json_events_match_the_schema(news: CheckpointEvent, capsys: pytest.CaptureFixture[str]) -> None:
    with EventView("sleeps", "local", created=True) as view:
        view.show(news)
    job, event = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert job["seen"] == "job"
    validator("follow").validate(event)
    assert event["location"] == WHERE


def test_no_thread_is_left(cloud: Cloud) -> None:
    wait_for(lambda: threading.active_count() == 1, "the threads' ends")
