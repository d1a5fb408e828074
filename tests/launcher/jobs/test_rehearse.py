"""`rehearse`: a local job with an injected fault passes or fails, and why."""

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
from smdp_launch.planning.faults import target_rank
from tests.conftest import JOB, Command, command_in, write_job
from tests.support.json_documents import SCHEMAS, validator

#: Counts to 15 in steps of 0.2 s and saves the count in the checkpoint folder. BAD selects another behaviour.
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
#: Sums 20 times with the other ranks, with a timeout of WAITS seconds.
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
#: Calls S3 for 30 steps of 0.2 s, as a client that retries and renews its credentials. BAD selects another behaviour.
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
    with private(state_folder(folder) / "local"):  # otherwise each command starts one
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
    ("arguments", "more", "expected"),
    [
        pytest.param(
            ["spot", "--at", "@8", "--for", "1"], {}, "PASS  the job restarted, continued at step ", marks=RUNS
        ),
        pytest.param(
            ["spot", "--at", "@8", "--for", "1"],
            {"bad": "forgets"},
            "FAIL  the script started again at step 1: it",
            marks=RUNS,
        ),
        pytest.param(
            ["spot", "--at", "@8", "--for", "1"],
            {"bad": "saves nothing"},
            "FAIL  no checkpoint had been saved when the hosts were stopped, and all 8 steps were repeated",
            marks=RUNS,
        ),
        pytest.param(
            ["spot", "--at", "@8", "--for", "1"], {"bad": "breaks"}, "FAIL  the job restarted and failed", marks=RUNS
        ),
        pytest.param(
            ["spot", "--for", "1"],
            {"text": JOB},
            "FAIL  no checkpoint had been saved when the hosts were stopped",
            marks=RUNS,
        ),
        pytest.param(
            ["spot", "--after", "60"],
            {},
            "INCONCLUSIVE  the fault was not injected: the job completed after ",
            marks=RUNS,
        ),
        pytest.param(["resume", "--at", "@8"], {}, "PASS  the job was resumed, continued at step ", marks=RUNS),
        pytest.param(
            ["resume", "--at", "@8"], {"bad": "saves nothing"}, "FAIL  the job could not be resumed: ", marks=RUNS
        ),
        (["kill"], {}, "PASS  the job ended by itself, and its FailureReason names rank 1"),
        pytest.param(
            ["kill", "--at", "@3"],
            {"bad": "leaves"},
            "INCONCLUSIVE  the fault was not injected: rank 1 had exited before",
            marks=RUNS,
        ),
        pytest.param(
            ["kill", "--within", "1"],
            {"bad": "stays"},
            "FAIL  the job still ran 1 s after rank 1 was killed, and would",
            marks=RUNS,
        ),
        pytest.param(
            ["slow", "--for", "1"], {}, "FAIL  no rank reported that rank 1 was paused for 1 s: none waited", marks=RUNS
        ),
        (["late", "--for", "2"], {}, "PASS  the other hosts waited 2 s for algo-2, and the job completed"),
    ],
)
def test_verdict_gives_the_reason(rehearse: Command, arguments: list[str], more: dict[str, str], expected: str) -> None:
    ran = rehearse(*arguments, **more)
    assert verdict(ran.stdout).startswith(expected), ran.stdout + ran.stderr
    assert ran.returncode == (ExitCode.OK if expected.startswith("PASS") else ExitCode.REHEARSAL_FAILED)


@pytest.mark.runs
def test_short_grace_is_reported_by_the_hosts(rehearse: Command) -> None:
    ran = rehearse("spot", "--at", "@3", "--for", "1", "--grace", "3")
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "SIGTERM received: sending SIGTERM, workers have 3 s to save and exit" in ran.stdout
    assert "SIGTERM to all hosts, 3 s to exit" in ran.stdout
    assert "115 s" not in ran.stdout


@RUNS
def test_fault_that_is_never_injected_is_inconclusive_and_in_no_plan(rehearse: Command, folder: Path) -> None:
    rehearsals = state_folder(folder) / "rehearsals"
    before = {path: path.read_bytes() for path in rehearsals.glob("*")}
    ran = rehearse("kill", "--at", "@99", "--json")
    assert ran.returncode == ExitCode.REHEARSAL_FAILED
    last = json.loads(ran.stdout.splitlines()[-1])
    validator("rehearsal").validate(last)
    assert (last["verdict"], last["passed"]) == ("INCONCLUSIVE", False)
    assert last["reason"].endswith("the last step that its script reported was 15, and --at is step 99")
    assert {path: path.read_bytes() for path in rehearsals.glob("*")} == before


#: Written for whole hosts of 8 GPUs, as many scripts are.
WHOLE_HOSTS = """import os
world_size = int(os.environ["WORLD_SIZE"])
batch = 64 // (world_size // 8)
print(f"batch {batch}")
"""


@pytest.mark.runs
def test_failure_from_too_few_workers_names_the_smallest_sufficient_number(folder: Path) -> None:
    write_job(folder, JOB, WHOLE_HOSTS)
    run = command_in(folder)
    expected = (
        "train.py, line 3: world_size // 8 is 0 with 2 workers; the job has 16",
        "--hosts 2 --workers-per-host 4",
    )
    for command in (["launch", "--local"], ["rehearse", "late", "--for", "0"]):
        ran = run(*command, *TWO)
        assert "ZeroDivisionError" in ran.stdout
        text = " ".join(ran.stdout.split())
        assert all(one in text for one in expected), ran.stdout
    enough = run("launch", "--local", "--hosts", "2", "--workers-per-host", "4")
    assert enough.returncode == ExitCode.OK, enough.stdout
    assert "world_size // 8" not in enough.stdout


@pytest.mark.torch
@pytest.mark.parametrize(
    ("arguments", "waits", "expected"),
    [
        pytest.param(
            ["slow", "--for", "7"],
            60,
            "PASS  the other ranks named rank 1 while it was paused, and the job continued",
            marks=RUNS,
        ),
        pytest.param(["slow", "--for", "7"], 3, "FAIL  the job failed after rank 1 was paused for 7 s", marks=RUNS),
        pytest.param(["late", "--for", "90"], 5, "FAIL  the job failed before algo-2 started, 90 s late", marks=RUNS),
    ],
)
def test_ranks_wait_for_a_paused_rank_until_their_timeout(
    folder: Path, arguments: list[str], waits: int, expected: str
) -> None:
    write_job(folder, f'{JOB}\nenvironment: {{WAITS: "{waits}"}}\n', SUMS)
    ran = command_in(folder)("rehearse", *arguments, *TWO)
    assert verdict(ran.stdout).startswith(expected), ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("arguments", "bad", "expected"),
    [
        pytest.param(
            ["throttle", "--for", "4"],
            "",
            "PASS  the job completed, and was followed to its end, although calls were refused",
            marks=RUNS,
        ),
        pytest.param(
            ["throttle", "--for", "4"], "asks once", "FAIL  the job failed when calls were refused", marks=RUNS
        ),
        pytest.param(
            ["expire", "--for", "3"],
            "",
            "PASS  the job completed, and was followed to its end, although calls were refused",
            marks=RUNS,
        ),
        pytest.param(
            ["expire", "--for", "3"], "keeps its keys", "FAIL  the job failed when calls were refused", marks=RUNS
        ),
    ],
)
def test_job_with_refused_calls_passes_if_it_retries(
    folder: Path, arguments: list[str], bad: str, expected: str
) -> None:
    write_job(folder, f'{JOB}\nenvironment: {{BAD: "{bad}"}}\n' if bad else JOB, CALLS)
    ran = command_in(folder)("rehearse", *arguments, "--hosts", "1", "--workers-per-host", "1", "--json")
    *lines, last = [json.loads(one) for one in ran.stdout.splitlines()]
    validator("rehearsal").validate(last)
    assert f"{'PASS' if last['passed'] else 'FAIL'}  {last['reason']}" == expected, ran.stdout[-3000:] + ran.stderr
    assert any(one.get("seen") == "waiting" for one in lines)
    if last["passed"]:
        rows = [one["value"] for one in last["evidence"]]
        (answered,) = (one for one in rows if one.startswith("calls are answered again; refused: "))
        assert "of sagemaker" in answered or "of logs" in answered, rows  # the follower's
        assert "of s3" in answered or arguments[0] == "expire", rows  # the script's
        steps = [one["fields"]["step"] for one in lines if one.get("seen") == "event" and one["name"] == "step"]
        assert steps == list(range(1, 31))  # no line was lost
    else:
        (ended,) = (one for one in lines if one.get("seen") == "ended")
        assert ("SlowDown" if bad == "asks once" else "ExpiredToken") in json.dumps(ended["traceback"])


def test_spot_reports_measured_values(rehearse: Command) -> None:
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
    assert rows["repeated"].startswith(str(max(steps[:again]) - int(rows["step after"]) + 1))


@pytest.mark.runs
def test_resumed_job_has_no_fault(rehearse: Command, folder: Path) -> None:
    assert rehearse("resume", "--at", "@5").returncode == ExitCode.OK
    requests = [json.loads(path.read_text()) for path in (state_folder(folder) / "local/jobs").glob("*/request.json")]
    resumed = [one for one in requests if any(tag["Key"] == "smdp-launch:resumes" for tag in one["Tags"])]
    assert resumed
    assert all(VARIABLE not in one["Environment"] for one in resumed)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["kill", "--at", "algo-3"], "there is no host algo-3: this run has algo-1, algo-2"),
        (["kill", "--at", "algo-2:7"], "there is no rank 7: this run has ranks 0 to 1"),
        (["slow", "--at", "algo-1:1"], "rank 1 is on algo-2, not on algo-1"),
        (["slow", "--at", "the first"], "'the first' is not HOST:RANK@STEP, such as algo-2:3@120"),
        (["spot", "--at", "@3", "--after", "2"], "--after and a step in --at exclude each other: pass one of them"),
        (["spot", "--at", "algo-2:1"], "spot affects all hosts: pass a step alone, such as @120"),
        (["kill", "--after", "nan"], "'nan' is no number of seconds"),
        (["late", "--hosts", "1"], "a late host needs another host that waits for it: add --hosts 2"),
        (["late", "--after", "2"], "No such option '--after'"),
        (["late", "--at", "algo-2@5"], "a host is late at its start: pass a host alone, such as algo-2"),
        (["slow-input", "--rate", "fast"], "'fast' is no rate such as 20MB (kB, MB, GB, KiB, MiB, GiB)"),
        (["slow-input", "--rate", "-1MB"], "'-1MB' is no rate such as 20MB"),
        (["slow-input", "--rate", "1kB"], "'1kB' is out of range: pass 10kB to 100GB, such as 20MB"),
        (["slow-input", "--latency", "90s"], "'90s' is out of range: pass 0ms to 60s, such as 20ms"),
        (["slow-input", "--rate", "0MB", "--latency", "0ms"], "nothing would be slow: pass a --rate or a --latency"),
        (["slow-input", "--after", "2"], "No such option '--after'"),
        (["sport"], "there is no command sport: did you mean spot?"),
    ],
)
def test_invalid_rehearsal_is_refused(rehearse: Command, arguments: list[str], said: str) -> None:
    ran = rehearse(*arguments)
    assert ran.returncode == ExitCode.USAGE
    assert said in " ".join(ran.stderr.split())


def test_place_is_parsed() -> None:
    assert Place.parse("algo-2:3@120") == Place("algo-2", 3, 120)
    assert Place.parse("@7") == Place(step=7)
    assert target_rank(Place(), 2, 4).rank == 7
    assert target_rank(Place("algo-2"), 2, 4).rank == 4
    assert target_rank(Place(rank=5), 2, 4).host == "algo-2"
    for text in ("", "@", "algo-0", "2:3", "algo-1:x", "algo-1@-1"):
        with pytest.raises(ValueError, match="is not HOST:RANK@STEP"):
            Place.parse(text)


@pytest.mark.parametrize("kind", KINDS)
def test_fault_survives_encoding(kind: str) -> None:
    fault = Fault(kind, "algo-2", 3, step=7, seconds=1.5, grace=0.0)  # type: ignore[arg-type]
    assert Fault.parse(fault.to_text()) == fault
