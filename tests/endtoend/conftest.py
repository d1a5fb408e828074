"""Jobs that really run: a folder with a job of a name of its own, and a watch on what they leave behind."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from smdp_launch.catalog.faults import Fault
from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.cli.render.launch import Followed
from smdp_launch.jobs.follow import Ended, Follower, Seen
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.service.clients import connect_endpoint
from smdp_launch.jobs.submit import seed, submit
from smdp_launch.localcloud.client import connect as localcloud
from smdp_launch.planning.prepare import local_run, make_plan
from tests.conftest import JOB, write_job
from tests.endtoend.leftovers import left_behind


@dataclass
class Job:
    """A job file in a folder of its own; ``name`` occurs nowhere else on this machine."""

    folder: Path
    name: str = field(default_factory=lambda: f"t{secrets.token_hex(6)}")

    def write(self, script: str, *changes: tuple[str, str]) -> Path:
        text = JOB.replace("name: small", f"name: {self.name}")
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        return write_job(self.folder, text, script)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    """A job's folder; afterwards no process, mount or temporary file may be left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    folder = tmp_path / "job"
    folder.mkdir()
    made = Job(folder)
    yield made
    assert left_behind(made.name, str(folder)) == []
    assert list(temporary.iterdir()) == []


@dataclass
class Ran:
    """All that was seen of one job, and where its results lie."""

    job: str
    seen: list[Seen]
    followed: Followed
    state: Path

    @property
    def lines(self) -> list[LogLine]:
        return [one for one in self.seen if isinstance(one, LogLine)]

    def events(self, name: str) -> list[JobEvent]:
        return [one for one in self.seen if isinstance(one, JobEvent) and one.name == name]


def run_job(path: Path, state: Path, hosts: int, workers: int, *, fault: Fault | None = None, **data: Path) -> Ran:
    """Run a job file in a local cloud of its own, with the code that ``launch --local`` and ``rehearse`` use."""
    import time
    from datetime import datetime, timezone

    asked = LocalRequest(hosts, workers, data)
    checked = check_job(path, asked)
    run = replace(local_run(checked, asked, 2), fault=fault)
    plan = make_plan(checked, datetime.now(timezone.utc), secrets.randbelow(1 << 16), run)
    seen: list[Seen] = []
    with localcloud.private(state) as endpoint:
        clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
        seed(clients, plan)
        submit(clients, plan)
        follower = Follower(clients, plan.job)
        deadline = time.monotonic() + 240
        while not (seen and isinstance(seen[-1], Ended)):
            assert time.monotonic() < deadline, seen[-20:]
            time.sleep(clients.poll)
            seen += follower.look()
    ended = seen[-1]
    assert isinstance(ended, Ended)
    return Ran(plan.job, seen, Followed(ended.outcome), state)
