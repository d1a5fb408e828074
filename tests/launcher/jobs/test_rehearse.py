"""`rehearse`: a job meets a fault on this machine, and is told to have come through or not, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from smdp_launch.catalog.faults import KINDS, VARIABLE, Fault, Place
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import state_folder
from smdp_launch.localcloud.client.connect import private
from smdp_launch.planning.faults import victim
from tests.conftest import JOB, Command, command_in, write_job
from tests.launcher.cli.test_json_documents import SCHEMAS, validator

#: Counts to 15 in steps of 0.2 s and keeps the count in the checkpoint folder. What it does otherwise stands in BAD.
COUNTS = """\
import json, os, signal, time
from pathlib import Path
bad = os.environ.get("BAD", "")
if bad == "stays":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
place = Path("/opt/ml/checkpoints/count")
count = int(place.read_text()) if place.exists() and bad != "forgets" else 0
rank = int(os.environ["RANK"])
if rank == 1 and bad == "leaves":
    raise SystemExit
if bad == "breaks" and place.exists():
    raise ValueError("this checkpoint is of no use")
while count < 15:
    time.sleep(0.2)
    count += 1
    if rank == 0:
        step = {"smdp_event": 1, "event": "step", "time": time.time(), "rank": 0, "step": count, "steps": 15}
        print(json.dumps(step), flush=True)
        if bad != "saves nothing" and place.parent.exists():
            place.with_name("partial").write_text(str(count))
            place.with_name("partial").replace(place)
"""
#: Sums 20 times with the other ranks, which it waits for as long as WAITS says.
SUMS = """\
import datetime, os, time
import torch, torch.distributed as dist
from smdp_engine import progress
dist.init_process_group("smddp", timeout=datetime.timedelta(seconds=float(os.environ.get("WAITS", "60"))))
for step in range(1, 21):
    dist.all_reduce(torch.ones(8))
    progress.step(step, 20)
    time.sleep(0.1)
dist.destroy_process_group()
"""
#: Calls S3 for 30 steps of 0.2 s, as a client that asks again and renews its credentials, or as BAD says.
CALLS = """\
import json, os, time
import boto3
from botocore.config import Config
bad = os.environ.get("BAD", "")
tries = {"total_max_attempts": 1} if bad == "asks once" else {"mode": "standard", "max_attempts": 12}
keys = boto3.Session().get_credentials().get_frozen_credentials() if bad == "keeps its keys" else None
kept = dict(zip(("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), keys)) if keys else {}
s3 = boto3.client("s3", config=Config(retries=tries), **kept)
for number in range(1, 31):
    time.sleep(0.2)
    s3.list_buckets()
    step = {"smdp_event": 1, "event": "step", "time": time.time(), "rank": 0, "step": number, "steps": 30}
    print(json.dumps(step), flush=True)
"""
KEEPS = JOB.replace("output: {s3", 'checkpoint: {s3: "s3://bucket/checkpoints"}\noutput: {s3')
EVENT = Draft202012Validator(json.loads(SCHEMAS["event"].read_text()))
TWO = ("--hosts", "2", "--workers-per-host", "1")
RUNS = pytest.mark.runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("rehearse")
    with private(state_folder(folder) / "local"):  # or each command would start one
        yield folder


@pytest.fixture
def rehearse(folder: Path) -> Command:
    def run(*arguments: str, text: str = KEEPS, bad: str = "", **environment: str) -> object:
        more = {**environment, **({"BAD": bad} if bad else {})}
        written = "".join(f"\nenvironment: {json.dumps(more)}\n" if more else "")
        write_job(folder, text + written, COUNTS)
        return command_in(folder)("rehearse", arguments[0], *TWO, *arguments[1:])

    return run  # type: ignore[return-value]


def verdict(output: str) -> str:
    (line,) = (one for one in output.splitlines() if one.startswith(("PASS", "FAIL", "INCONCLUSIVE")))
    return line


@pytest.mark.parametrize(
    ("arguments", "more", "told"),
    [
        pytest.param(["spot", "--at", "@8", "--for", "1"], {}, "PASS  the job came back, went on at step ", marks=RUNS),
        (["spot", "--at", "@8", "--for", "1"], {"bad": "forgets"}, "FAIL  the script began again at step 1: its"),
        pytest.param(
            ["spot", "--at", "@8", "--for", "1"],
            {"bad": "saves nothing"},
            "FAIL  no checkpoint had been kept when the hosts went, and all 8 steps were done again",
            marks=RUNS,
        ),
        pytest.param(
            ["spot", "--at", "@8", "--for", "1"],
            {"bad": "breaks"},
            "FAIL  the job came back and failed",
            marks=RUNS,
        ),
        pytest.param(
            ["spot", "--for", "1"],
            {"text": JOB},
            "FAIL  no checkpoint had been kept when the hosts went",
            marks=RUNS,
        ),
        pytest.param(
            ["spot", "--after", "60"],
            {},
            "INCONCLUSIVE  the fault was not injected: the job completed after ",
            marks=RUNS,
        ),
        (["resume", "--at", "@8"], {}, "PASS  the job was resumed, went on at step "),
        pytest.param(
            ["resume", "--at", "@8"], {"bad": "saves nothing"}, "FAIL  the job could not be resumed: ", marks=RUNS
        ),
        (["kill"], {}, "PASS  the job ended by itself, and its FailureReason names rank 1"),
        pytest.param(
            ["kill", "--at", "@3"],
            {"bad": "leaves"},
            "INCONCLUSIVE  the fault was not injected: rank 1 had ended before",
            marks=RUNS,
        ),
        pytest.param(
            ["kill", "--within", "1"],
            {"bad": "stays"},
            "FAIL  1 s after rank 1 was killed the job still ran, and would",
            marks=RUNS,
        ),
        pytest.param(
            ["slow", "--for", "1"],
            {},
            "FAIL  nobody said that rank 1 stood still for 1 s: no other rank waited",
            marks=RUNS,
        ),
        (["late", "--for", "2"], {}, "PASS  the others waited 2 s for algo-2, and the job completed"),
    ],
)
def test_a_job_comes_through_or_it_is_said_why_not(
    rehearse: Command, arguments: list[str], more: dict[str, str], told: str
) -> None:
    ran = rehearse(*arguments, **more)
    assert verdict(ran.stdout).startswith(told), ran.stdout + ran.stderr
    assert ran.returncode == (ExitCode.OK if told.startswith("PASS") else ExitCode.REHEARSAL_FAILED)


@pytest.mark.runs
def test_hosts_say_how_much_time_a_short_grace_leaves_them(rehearse: Command) -> None:
    ran = rehearse("spot", "--at", "@3", "--for", "1", "--grace", "3")
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "SIGTERM received: passed on as SIGTERM, 3 s to save and end" in ran.stdout
    assert "SIGTERM to all hosts, 3 s to end" in ran.stdout
    assert "115 s" not in ran.stdout


def test_a_fault_that_is_never_injected_is_inconclusive_and_counts_for_no_plan(rehearse: Command, folder: Path) -> None:
    rehearsals = state_folder(folder) / "rehearsals"
    before = {path: path.read_bytes() for path in rehearsals.glob("*")}
    ran = rehearse("kill", "--at", "@99", "--json")
    assert ran.returncode == ExitCode.REHEARSAL_FAILED
    last = json.loads(ran.stdout.splitlines()[-1])
    validator("rehearsal").validate(last)
    assert (last["verdict"], last["passed"]) == ("INCONCLUSIVE", False)
    assert last["reason"].endswith("the last step that its script reported was 15; --at asks for step 99")
    assert {path: path.read_bytes() for path in rehearsals.glob("*")} == before


#: Fit for whole hosts of 8 GPUs, as many scripts are.
WHOLE_HOSTS = """import os
world_size = int(os.environ["WORLD_SIZE"])
batch = 64 // (world_size // 8)
print(f"batch {batch}")
"""


@pytest.mark.runs
def test_a_failure_for_want_of_workers_names_the_smallest_number_that_is_enough(folder: Path) -> None:
    write_job(folder, JOB, WHOLE_HOSTS)
    run = command_in(folder)
    told = ("train.py, line 3: world_size // 8 is 0 with 2 workers; the job has 16", "--hosts 2 --workers-per-host 4")
    for command in (["launch", "--local"], ["rehearse", "late", "--for", "0"]):
        ran = run(*command, *TWO)
        assert "ZeroDivisionError" in ran.stdout
        text = " ".join(ran.stdout.split())
        assert all(one in text for one in told), ran.stdout
    enough = run("launch", "--local", "--hosts", "2", "--workers-per-host", "4")
    assert enough.returncode == ExitCode.OK, enough.stdout
    assert "world_size // 8" not in enough.stdout


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "waits", "told"),
    [
        (["slow", "--for", "7"], 60, "PASS  the others named rank 1 while it stood still, and the job went on"),
        pytest.param(
            ["slow", "--for", "7"], 3, "FAIL  the job failed after rank 1 had stood still for 7 s", marks=RUNS
        ),
        pytest.param(["late", "--for", "90"], 5, "FAIL  the job failed before algo-2 came, 90 s late", marks=RUNS),
    ],
)
def test_ranks_that_wait_for_each_other_do_so_as_long_as_they_may(
    folder: Path, arguments: list[str], waits: int, told: str
) -> None:
    write_job(folder, f'{JOB}\nenvironment: {{WAITS: "{waits}"}}\n', SUMS)
    ran = command_in(folder)("rehearse", *arguments, *TWO)
    assert verdict(ran.stdout).startswith(told), ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("arguments", "bad", "told"),
    [
        (["throttle", "--for", "4"], "", "PASS  the job was followed to its end through the refusals, and completed"),
        pytest.param(
            ["throttle", "--for", "4"], "asks once", "FAIL  the job failed when calls were refused", marks=RUNS
        ),
        pytest.param(
            ["expire", "--for", "3"],
            "",
            "PASS  the job was followed to its end through the refusals, and completed",
            marks=RUNS,
        ),
        pytest.param(
            ["expire", "--for", "3"], "keeps its keys", "FAIL  the job failed when calls were refused", marks=RUNS
        ),
    ],
)
def test_a_job_whose_calls_are_refused_asks_again(folder: Path, arguments: list[str], bad: str, told: str) -> None:
    write_job(folder, f'{JOB}\nenvironment: {{BAD: "{bad}"}}\n' if bad else JOB, CALLS)
    ran = command_in(folder)("rehearse", *arguments, "--hosts", "1", "--workers-per-host", "1", "--json")
    *lines, last = [json.loads(one) for one in ran.stdout.splitlines()]
    validator("rehearsal").validate(last)
    assert f"{'PASS' if last['passed'] else 'FAIL'}  {last['reason']}" == told, ran.stdout[-3000:] + ran.stderr
    assert any(one.get("seen") == "waiting" for one in lines)
    if last["passed"]:
        rows = [one["value"] for one in last["evidence"]]
        (answered,) = (one for one in rows if one.startswith("calls are answered again; refused were "))
        assert "of sagemaker" in answered or "of logs" in answered, rows  # the follower's
        assert "of s3" in answered or arguments[0] == "expire", rows  # the script's
        steps = [one["fields"]["step"] for one in lines if one.get("seen") == "event" and one["name"] == "step"]
        assert steps == list(range(1, 31))  # no line was lost
    else:
        (ended,) = (one for one in lines if one.get("seen") == "ended")
        assert ("SlowDown" if bad == "asks once" else "ExpiredToken") in json.dumps(ended["traceback"])


def test_spot_tells_what_was_measured(rehearse: Command) -> None:
    ran = rehearse("spot", "--at", "@8", "--for", "3", "--json")
    lines = [json.loads(one) for one in ran.stdout.splitlines()]
    for one in lines[:-1]:
        validator("follow").validate(one)
        if one.get("seen") == "event":
            EVENT.validate(one["fields"])
    last = lines[-1]
    validator("rehearsal").validate(last)
    assert (last["rehearsal"], last["kind"], last["passed"]) == (1, "spot", True)
    rows = {one["name"]: one["value"] for one in last["evidence"] if one["name"]}
    (ended,) = (one for one in lines if one.get("seen") == "ended")
    outcome = ended["outcome"]
    away = outcome["training_seconds"] - outcome["billable_seconds"]
    assert 3 <= away <= 4
    assert rows["billable"].startswith(f"{outcome['billable_seconds']} of {outcome['training_seconds']} s on each host")
    steps = [one["fields"]["step"] for one in lines if one.get("seen") == "event" and one["name"] == "step"]
    again = steps.index(int(rows["step after"]), steps.index(8))
    assert int(rows["step before"]) == max(steps[:again])
    assert rows["done again"].startswith(str(max(steps[:again]) - int(rows["step after"]) + 1))


@pytest.mark.runs
def test_the_new_job_of_a_resumption_meets_no_fault(rehearse: Command, folder: Path) -> None:
    assert rehearse("resume", "--at", "@5").returncode == ExitCode.OK
    requests = [json.loads(path.read_text()) for path in (state_folder(folder) / "local/jobs").glob("*/request.json")]
    resumed = [one for one in requests if any(tag["Key"] == "smdp-launch:resumes" for tag in one["Tags"])]
    assert resumed
    assert all(VARIABLE not in one["Environment"] for one in resumed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kill", "--at", "algo-3"], "there is no algo-3: here the hosts are algo-1, algo-2"),
        (["kill", "--at", "algo-2:7"], "there is no rank 7: here they are 0 to 1"),
        (["slow", "--at", "algo-1:1"], "rank 1 is on algo-2, not on algo-1"),
        (["slow", "--at", "the first"], "'the first' is not HOST:RANK@STEP, such as algo-2:3@120"),
        (["spot", "--at", "@3", "--after", "2"], "--after and a step in --at are two moments: give one of them"),
        (["spot", "--at", "algo-2:1"], "spot strikes no single host: name a step alone, such as @120"),
        (["kill", "--after", "nan"], "'nan' is no number of seconds"),
        (["late", "--hosts", "1"], "a single host has nobody that waits for it: give --hosts 2"),
        (["late", "--after", "2"], "No such option '--after'"),
        (["late", "--at", "algo-2@5"], "a host is late at the start: name the host alone, such as algo-2"),
        (["sport"], "there is no command sport: did you mean spot?"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused(rehearse: Command, arguments: list[str], said: str) -> None:
    ran = rehearse(*arguments)
    assert ran.returncode == ExitCode.USAGE
    assert said in " ".join(ran.stderr.split())


def test_places_are_found() -> None:
    assert Place.parse("algo-2:3@120") == Place("algo-2", 3, 120)
    assert Place.parse("@7") == Place(step=7)
    assert victim(Place(), 2, 4).rank == 7
    assert victim(Place("algo-2"), 2, 4).rank == 4
    assert victim(Place(rank=5), 2, 4).host == "algo-2"
    for text in ("", "@", "algo-0", "2:3", "algo-1:x", "algo-1@-1"):
        with pytest.raises(ValueError, match="is not HOST:RANK@STEP"):
            Place.parse(text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_what_it_was_written_as(kind: str) -> None:
    fault = Fault(kind, "algo-2", 3, step=7, seconds=1.5, grace=0.0)  # type: ignore[arg-type]
    assert Fault.parse(fault.to_text()) == fault
