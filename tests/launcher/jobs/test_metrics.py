"""`metrics` prints the numbers of a job, or serves them, while it runs and after its end."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import state_folder
from smdp_launch.localcloud.client.connect import private
from tests.conftest import LAUNCHER, Command, clean_environment, command_in, write_job
from tests.support.jobs.service import name_of
from tests.support.json_documents import validator
from tests.support.numbers.openmetrics import value
from tests.support.waiting import wait_for

SCRIPT = """\
import os, time
from smdp_engine import progress
for step in range(1, 4):
    progress.step(step, 4, loss=1 / step, text="\\x1b[31m", infinite=float("inf"))
while os.environ["RANK"] == "0" and not os.path.exists(os.path.join(os.environ["SM_OUTPUT_DATA_DIR"], "go")):
    time.sleep(0.02)
progress.step(4, 4, loss=0.25)
progress.emit("mine", nested="x")
print("no event")
"""


@dataclass(frozen=True)
class Seen:
    """What the commands said about one job. ``early``: while it waited after its third step."""

    job: str
    run: Command
    early: str
    scraped: str
    content_type: str | None
    followed: subprocess.CompletedProcess[str]
    served: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("metrics")
    write_job(folder, script=SCRIPT)
    run = command_in(folder)
    with private(state_folder(folder) / "local") as endpoint:
        ran = run("launch", "--local", "--hosts", "1", "--workers-per-host", "2", "--detach")
        assert ran.returncode == ExitCode.OK, ran.stderr
        job = name_of(folder)
        server, follower = _start(folder, "--listen", "0"), _start(folder, "--follow")
        assert server.stderr is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/metrics", server.stderr.readline())
        assert address is not None
        wait_for(lambda: "smdp_step{" in _get(address[0])[0] and value(_get(address[0])[0], "smdp_step") == 3, "step 3")
        scraped, content_type = _get(address[0])
        with pytest.raises(urllib.error.HTTPError, match="404"):
            _get(f"{address[0]}/x")
        early = run("metrics").stdout
        (endpoint.state_dir / "jobs" / job / "hosts" / "algo-1" / "ml" / "output" / "data" / "go").touch()
        followed = _end(follower)
        wait_for(lambda: _is_gone(address[0]), "the end of the server after a scrape of the job's last numbers")
        yield Seen(job, run, early, scraped, content_type, followed, _end(server))


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [LAUNCHER, "metrics", *arguments],
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    output, errors = process.communicate(timeout=100)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _get(address: str) -> tuple[str, str | None]:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def _is_gone(address: str) -> bool:
    try:
        _get(address)
    except OSError:
        return True
    return False


def lines(output: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in output.splitlines()]
    for one in found:
        validator("metrics").validate(one)
    return found


def test_every_event_is_a_line(seen: Seen) -> None:
    ran = seen.run("metrics")
    assert (ran.returncode, ran.stderr) == (ExitCode.OK, "")
    found = lines(ran.stdout)
    assert {one["job"] for one in found} == {seen.job}
    steps = [one for one in found if one["event"] == "step"]
    assert [one["step"] for one in steps] == [1, 2, 3, 4]
    assert {"host": "algo-1", "rank": 0, "steps": 4, "loss": 0.5, "infinite": "inf"}.items() <= steps[1].items()
    assert sorted(one["rank"] for one in found if one["event"] == "mine") == [0, 1]  # type: ignore[type-var]
    assert [one["rank"] for one in found if one["event"] == "workers_started"] == [None]
    assert "\x1b" not in ran.stdout
    assert "no event" not in ran.stdout


def test_running_job_has_the_lines_until_now(seen: Seen) -> None:
    assert [one["step"] for one in lines(seen.early) if one["event"] == "step"] == [1, 2, 3]


def test_followed_lines_are_those_of_the_end(seen: Seen) -> None:
    assert seen.followed.returncode == ExitCode.OK
    assert lines(seen.followed.stdout) == lines(seen.run("metrics").stdout)


def test_openmetrics_has_the_last_values(seen: Seen) -> None:
    ran = seen.run("metrics", seen.job, "--openmetrics")
    assert ran.returncode == ExitCode.OK
    assert value(ran.stdout, "smdp_step", job=seen.job) == 4
    assert value(ran.stdout, "smdp_metric", metric="loss") == 0.25


def test_scraper_gets_the_numbers_of_a_running_job(seen: Seen) -> None:
    assert seen.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert value(seen.scraped, "smdp_step", job=seen.job) == 3
    assert value(seen.scraped, "smdp_workers") == 2
    assert seen.served.returncode == ExitCode.OK, seen.served.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["no-such-job"], ExitCode.REFUSED, "no-such-job"),
        (["--follow", "--openmetrics"], ExitCode.USAGE, "exclude each other"),
        (["--listen", "nowhere"], ExitCode.USAGE, "is no address"),
        (["--listen", "70000"], ExitCode.USAGE, "is no address"),
        (["--listen", "192.0.2.1:0"], ExitCode.ENVIRONMENT, "cannot listen on 192.0.2.1:0"),
    ],
)
def test_impossible_request_gives_one_sentence(seen: Seen, arguments: list[str], code: ExitCode, message: str) -> None:
    ran = seen.run("metrics", *arguments)
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.returncode == code
