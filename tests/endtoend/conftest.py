"""Fixtures for jobs that run: a folder with a uniquely named job, and a check for leftovers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from smdp_launch.catalog.faults import Fault
from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.cli.render.job.launch import FollowResult
from smdp_launch.jobs.follow import Ended, Follower, FollowEvent
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.service.clients import connect_endpoint
from smdp_launch.jobs.submit import seed, submit
from smdp_launch.localcloud.client import connect as localcloud
from smdp_launch.planning.prepare import local_run, make_plan
from tests.conftest import JOB, write_job
from tests.endtoend.leftovers import left_behind


@dataclass
class Job:
    """A job file in a private folder with a unique ``name``."""

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
    """A job's folder. After the test no process, mount or temporary file may be left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    folder = tmp_path / "job"
    folder.mkdir()
    made = Job(folder)
    yield made
    assert left_behind(made.name, str(folder)) == []
    assert list(temporary.iterdir()) == []


def job_state(job: Job) -> dict[str, object]:
    (path,) = job.folder.glob(".smdp/local/jobs/*/state.json")
    state: dict[str, object] = json.loads(path.read_text())
    return state


@dataclass
class Ran:
    """All events of one job, and the state folder of its local cloud."""

    job: str
    seen: list[FollowEvent]
    followed: FollowResult
    state: Path

    @property
    def lines(self) -> list[LogLine]:
        return [one for one in self.seen if isinstance(one, LogLine)]

    def events(self, name: str) -> list[JobEvent]:
        return [one for one in self.seen if isinstance(one, JobEvent) and one.name == name]


def run_job(path: Path, state: Path, hosts: int, workers: int, *, fault: Fault | None = None, **data: Path) -> Ran:
    """Run a job file in a private local cloud, with the code of ``launch --local`` and ``rehearse``."""
    from datetime import datetime, timezone

    options = LocalRequest(hosts, workers, data)
    checked = check_job(path, options)
    run = replace(local_run(checked, options, 2), fault=fault)
    plan = make_plan(checked, datetime.now(timezone.utc), secrets.randbelow(1 << 16), run)
    with localcloud.private(state) as endpoint:
        clients = connect_endpoint(endpoint.url, endpoint.region, endpoint.access_key, endpoint.secret_key)
        seed(clients, plan)
        submit(clients, plan)
        seen = list(Follower(clients, plan.job, timeout=240).events())
    ended = seen[-1]
    assert isinstance(ended, Ended)
    return Ran(plan.job, seen, FollowResult(ended.outcome), state)
