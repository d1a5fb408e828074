"""One job through a service of which three calls in ten fail: launched, followed and stopped exactly once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from botocore.config import Config

from smdp_launch.checking.job import check_job
from smdp_launch.jobs.follow import Ended, FollowEvent, StatusChanged
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.retry_policy import RetryPolicy
from smdp_launch.jobs.submit import submit
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.prepare import make_plan
from tests.conftest import JOB, write_job
from tests.localcloud.conftest import assert_nothing_runs, open_cloud_on
from tests.support.services.cloud import Cloud, client_of
from tests.support.services.faults import Fault, Policy, Proxy

FAILING = 0.3
LINES = "import os\nfor number in range(40):\n    print('line', os.environ['RANK'], number, flush=True)\n"
WAITS = LINES + "import time\nprint('waiting', flush=True)\ntime.sleep(300)\n"
_STATUSES = ["Pending", "Downloading", "Training", "Uploading", "Completed"]


@contextmanager
def cloud_with_data(state: Path) -> Iterator[Cloud]:
    """A local cloud on ``state`` with data for the channel of the example job. Nothing of it runs afterwards."""
    with ExitStack() as stack:
        cloud = open_cloud_on(state, stack)
        cloud.s3.put_object(Bucket="bucket", Key="train/part-0", Body=b"0123456789")
        yield cloud
    assert_nothing_runs(str(state))


def three_in_ten(seed: int) -> Policy:
    chance = random.Random(seed)
    return lambda *_: chance.choice(list(Fault)) if chance.random() < FAILING else None


def first_of_each_two(fault: Fault) -> Policy:
    """Each call of an operation fails, and its retry succeeds."""
    calls: Counter[str] = Counter()

    def policy(operation: str, _: str) -> Fault | None:
        calls[operation] += 1
        return fault if calls[operation] % 2 else None

    return policy


def clients_through(proxy: Proxy, cloud: Cloud) -> Clients:
    """Clients without botocore's own retries, so that every failure is visible."""
    config = Config(proxies={"http": proxy.url}, retries={"total_max_attempts": 1}, read_timeout=20)

    def service(name: str) -> Any:
        return client_of(cloud.endpoint, name, config=config)

    policy = RetryPolicy(first_gap=0.01, longest_gap=0.05, total=60, credential_tries=40)
    made = Clients(service("sagemaker"), service("s3"), service("logs"), 0.05, service, service, policy)
    made.reconnect = lambda: made
    return made


def make(folder: Path, seed: int, script: str, hosts: int) -> Plan:
    folder.mkdir(exist_ok=True)
    text = JOB.replace("instance_count: 2", f"instance_count: {hosts}").replace(
        "max_run: 600", "max_run: 600\nenvironment: {SMDP_WORKERS_PER_HOST: '1'}"
    )
    path = write_job(folder, text.replace("name: small", f"name: seed{seed}"), script)
    return make_plan(check_job(path, environ={}), datetime.now(timezone.utc), seed)


@dataclass
class Result:
    """The outcome of one job, and the number of broken calls."""

    outcome: Outcome
    faults: int


def run(cloud: Cloud, folder: Path, seed: int, policy: Policy | None = None) -> Result:
    """Launch and follow a job, and stop it if the seed is odd.

    Raises:
        AssertionError: a call had an effect twice, or none.
    """
    stops, hosts = seed % 2 == 1, 2 if seed % 5 == 0 else 1
    plan = make(folder, seed, WAITS if stops else LINES, hosts)
    with Proxy(policy or three_in_ten(seed)).running() as proxy:
        clients = clients_through(proxy, cloud)
        submit(clients, plan)
        job = Job(plan.job, "us-east-1", None, lambda: nullcontext(clients))
        seen = follow(job, stops)
        assert proxy.accepted["CreateTrainingJob"] == 1
        assert proxy.accepted["StopTrainingJob"] == int(stops)
    assert [one.name for one in (cloud.state_dir / "jobs").iterdir()].count(plan.job) == 1
    assert_each_line_once(cloud, plan.job, seen, hosts)
    ended = [one.outcome for one in seen if isinstance(one, Ended)]
    assert len(ended) == 1
    assert isinstance(seen[-1], Ended)
    statuses = [one.status for one in seen if isinstance(one, StatusChanged)]
    assert statuses == [*_STATUSES[:3], "Stopping", "Uploading", "Stopped"] if stops else statuses == _STATUSES
    return Result(ended[0], sum(proxy.faults.values()))


def follow(job: Job, stops: bool) -> list[FollowEvent]:
    seen: list[FollowEvent] = []
    for one in job.follow(timeout=120):
        seen.append(one)
        if stops and isinstance(one, LogLine) and one.text == "waiting":
            job.stop()
            stops = False
    return seen


def assert_each_line_once(cloud: Cloud, job: str, seen: list[FollowEvent], hosts: int) -> None:
    """Each line is shown once, in the order in which its host wrote it."""
    texts: dict[str, list[str]] = {}
    for one in seen:
        if isinstance(one, LogLine) and one.rank is not None:
            texts.setdefault(one.host, []).append(one.text)
    for rank in range(hosts):
        lines = [text for text in texts[f"algo-{rank + 1}"] if text != "waiting"]
        assert lines == [f"line {rank} {number}" for number in range(40)]
    assert sum(isinstance(one, LogLine | JobEvent) for one in seen) == len(cloud.log(job))
