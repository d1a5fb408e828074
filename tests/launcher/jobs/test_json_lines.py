"""`launch`, `follow` and `resume` with `--json`: one object a line, valid for the schema; the outcome is last."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import LOCAL, record_launch, state_folder
from smdp_launch.localcloud.client.connect import private
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, write_job
from tests.support.jobs.service import name_of
from tests.support.jobs.stopped import CHECKPOINT, COUNTS, stored
from tests.support.json_documents import documents, seen, validator
from tests.support.waiting import wait_for

RUN = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1", "--json"]
FAILS = """\
import json, math, time
print("caf\u00e9 \u2028 x")
print(json.dumps({"smdp_event": 1, "event": "result", "time": time.time(), "rank": 0, "loss": 0.5,
    "worst": float("nan"), "bound": [-math.inf], "note": "\\ud800"}), flush=True)
raise ValueError("no such luck")
"""
WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(300)\n"


@pytest.fixture
def here(job_folder: Path) -> Iterator[Path]:
    with private(state_folder(job_folder) / "local"):  # otherwise each command starts one
        yield job_folder


def test_follow_json_begins_with_the_job_and_ends_with_its_outcome(here: Path, smdp_launch: Command) -> None:
    write_job(here, script=FAILS)
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.JOB_FAILED
    found = documents(ran.stdout)
    assert found[0] == {"follow": 1, "seen": "job", "job": name_of(here), "where": "local"}
    statuses = [one["status"] for one in seen(found, "status")]
    assert statuses == ["Pending", "Downloading", "Training", "Uploading", "Failed"]
    (line,) = (one for one in seen(found, "line") if one["text"].startswith("caf"))
    assert (line["text"], line["host"], line["rank"]) == ("caf\u00e9  x", "algo-1", 0)
    assert {one["name"] for one in seen(found, "event")} >= {"workers_started", "result", "worker_exit"}
    last = found[-1]
    assert last["seen"] == "ended"
    assert last["outcome"]["exit_code"] == ExitCode.JOB_FAILED
    assert "no such luck" in last["outcome"]["reason"]
    metrics = {"loss": 0.5, "worst": "nan", "bound": ["-inf"], "note": "\ufffd"}
    assert last["result"].items() >= metrics.items()
    (event,) = (one for one in seen(found, "event") if one["name"] == "result")
    assert event["fields"].items() >= metrics.items()
    assert last["traceback"]["lines"][-1] == "ValueError: no such luck"
    again = smdp_launch("follow", "--json", "--quiet")
    assert (again.returncode, again.stderr) == (ExitCode.JOB_FAILED, "")
    quiet = documents(again.stdout)
    assert seen(quiet, "line") == []
    assert (quiet[0], quiet[-1]) == (found[0], last)


def test_unknown_job_gives_no_job_line(here: Path, smdp_launch: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    record_launch("never-1", LOCAL, "job.yaml", "0" * 64, datetime.now(timezone.utc))
    ran = smdp_launch("follow", "--json")
    assert ran.returncode == ExitCode.SERVICE
    (document,) = documents(ran.stdout)
    assert "never-1 cannot be followed" in document["message"]


@pytest.mark.runs
def test_detached_launch_gives_only_the_job_line(here: Path, smdp_launch: Command) -> None:
    ran = smdp_launch(*RUN, "--detach")
    assert ran.returncode == ExitCode.OK
    assert documents(ran.stdout) == [{"follow": 1, "seen": "job", "job": name_of(here), "where": "local"}]
    timed = smdp_launch("follow", "--json", "--timeout", "0")
    assert timed.returncode == ExitCode.WAIT_TIMED_OUT
    assert documents(timed.stdout)[-1]["exit_code"] == ExitCode.WAIT_TIMED_OUT
    assert documents(smdp_launch("follow", "--json").stdout)[-1]["outcome"]["summary"] == "completed"


def test_interrupt_with_json_asks_no_question(here: Path) -> None:
    write_job(here, script=WAITS)
    command = [LAUNCHER, *RUN]
    with subprocess.Popen(command, cwd=here, env=clean_environment(), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        output = ""
        while "waiting" not in output.rpartition("\n{")[2]:
            output += running.stdout.readline()
        os.kill(running.pid, signal.SIGINT)
        rest, _ = running.communicate(timeout=60)
    assert running.returncode == ExitCode.JOB_STOPPED
    found = documents(output + rest)
    assert seen(found, "note")[0]["text"].startswith("stopping: ")
    assert found[-1]["outcome"]["exit_code"] == ExitCode.JOB_STOPPED


@pytest.mark.runs
def test_resume_json_begins_with_the_resumption(here: Path, smdp_launch: Command) -> None:
    write_job(here, CHECKPOINT, COUNTS)
    assert smdp_launch(*RUN, "--detach").returncode == ExitCode.OK
    old = name_of(here)
    wait_for(lambda: stored(here), "the first checkpoint")
    assert smdp_launch("stop").returncode == ExitCode.OK
    assert smdp_launch("follow", "--json", "--quiet").returncode == ExitCode.JOB_STOPPED
    (shown,) = documents(smdp_launch("resume", "--dry-run", "--json").stdout)
    ran = smdp_launch("resume", "--json")
    assert ran.returncode == ExitCode.OK, ran.stderr
    found = documents(ran.stdout)
    assert found[0] == shown
    assert (shown["resumes"], shown["checkpoints"]["files"]) == (old, 1)
    assert found[1] == {"follow": 1, "seen": "job", "job": shown["job"], "where": "local"}
    assert found[-1]["seen"] == "ended"


def test_refusal_is_one_json_line(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(JOB.replace("name: small", "nme: small"))
    for arguments, code in (
        (RUN, ExitCode.JOB_FILE_REFUSED),
        ([*RUN, "--hosts", "0"], ExitCode.USAGE),
        (["follow", "--json"], ExitCode.REFUSED),
        (["resume", "--json"], ExitCode.REFUSED),
    ):
        ran = smdp_launch(*arguments)
        assert ran.returncode == code
        (document,) = documents(ran.stdout)
        assert document["exit_code"] == code
        assert bool(document["diagnostics"]) == (code == ExitCode.JOB_FILE_REFUSED)


def test_json_launch_on_aws_asks_no_question(smdp_launch: Command) -> None:
    ran = smdp_launch("launch", "--json")
    assert ran.returncode == ExitCode.REFUSED
    (document,) = documents(ran.stdout)
    assert "add --yes" in document["message"]


def test_json_dry_run_prints_the_plan(smdp_launch: Command) -> None:
    for arguments in (["launch", "--dry-run", "--json"], [*RUN, "--dry-run"]):
        ran = smdp_launch(*arguments)
        assert ran.returncode == ExitCode.OK
        assert ran.stdout.count("\n") == 1
        validator("plan").validate(json.loads(ran.stdout))
