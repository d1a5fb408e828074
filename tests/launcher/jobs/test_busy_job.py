"""A job that never stops writing: `logs` ends, and the follower makes few calls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from smdp_launch.jobs.follow import Follower
from smdp_launch.jobs.logs.read import LogFilter, read_lines
from tests.localcloud.conftest import assert_nothing_runs, open_cloud_on
from tests.support.services.cloud import Cloud
from tests.support.services.faults import Proxy
from tests.support.services.faulty_service import clients_through
from tests.support.waiting import wait_for

WRITES = """
import time
while True:
    print("line", flush=True)
    time.sleep(0.01)
"""
HOSTS = 2


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    state = tmp_path_factory.mktemp("busy") / "state"
    with ExitStack() as stack:
        made = open_cloud_on(state, stack)
        made.start("busy", WRITES, hosts=HOSTS)
        for host in ("algo-1", "algo-2"):
            wait_for(lambda host=host: f"[{host}:" in "".join(made.log("busy")), f"a line of {host}")
        yield made
        made.sagemaker.stop_training_job(TrainingJobName="busy")
        made.wait("busy")
    assert_nothing_runs(str(state))


class Growth:
    """Delays a call for lines until every stream has more lines than at the previous call."""

    def __init__(self, cloud: Cloud) -> None:
        self._folder = cloud.state_dir / "jobs" / "busy" / "logs"
        self._sizes = self._now()
        self.calls = 0

    def _now(self) -> list[int]:
        return [one.stat().st_size for one in sorted(self._folder.glob("*.jsonl"))]

    def __call__(self, operation: str, _: str) -> None:
        if operation == "GetLogEvents":
            self.calls += 1
            wait_for(lambda: all(now > one for now, one in zip(self._now(), self._sizes, strict=True)), "more lines")
            self._sizes = self._now()


@pytest.mark.timeout(120)
def test_logs_end_at_the_time_of_the_call(cloud: Cloud) -> None:
    with Proxy(Growth(cloud)).running() as proxy:
        lines = list(read_lines(clients_through(proxy, cloud), "busy", LogFilter()))
    read = time.time() * 1000
    assert {one.host for one in lines if one.text == "line"} == {"algo-1", "algo-2"}
    assert max(one.time_ms for one in lines) <= read


def test_follower_at_the_end_makes_one_call_for_each_stream_and_pauses(cloud: Cloud) -> None:
    growth = Growth(cloud)
    with Proxy(growth).running() as proxy:
        clients = clients_through(proxy, cloud)
        follower = Follower(clients, "busy")
        list(follower.poll())
        for _ in range(5):
            growth.calls = 0
            list(follower.poll())
            assert growth.calls == HOSTS
            assert follower.pause == clients.poll
            time.sleep(follower.pause)
