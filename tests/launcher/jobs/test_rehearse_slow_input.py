"""`rehearse slow-input`: a local job whose channels are slow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import state_folder
from smdp_launch.localcloud.client.connect import private
from tests.conftest import JOB, command_in, write_job
from tests.support.isolation import needs_fuse
from tests.support.json_documents import SCHEMAS, validator

EVENT = Draft202012Validator(json.loads(SCHEMAS["event"].read_text()))
TWO = ("--hosts", "2", "--workers-per-host", "1")
READS = """\
import json, os, time
from pathlib import Path
for step in range(1, 4):
    for one in Path(os.environ["SM_CHANNEL_TRAIN"]).iterdir():
        one.read_bytes()
    if os.environ["RANK"] == "0":
        line = {"smdp_event": 1, "event": "step", "time": time.time(), "rank": 0, "step": step, "steps": 3}
        print(json.dumps(line), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("slow-input")
    with private(state_folder(folder) / "local"):  # otherwise each command starts one
        yield folder


def verdict(output: str) -> str:
    (line,) = (one for one in output.splitlines() if one.startswith(("PASS", "FAIL", "INCONCLUSIVE")))
    return line


@needs_fuse
def test_slow_input_reports_what_was_read(folder: Path) -> None:
    write_job(folder, JOB, READS)
    ran = command_in(folder)("rehearse", "slow-input", "--rate", "10kB", "--latency", "50ms", *TWO, "--json")
    *lines, last = [json.loads(one) for one in ran.stdout.splitlines()]
    validator("rehearsal").validate(last)
    assert last["passed"], last
    limit = "10.0 kB/s and 50 ms before the first bytes of a file on each host"
    assert last["reason"].startswith(
        f"the job completed with input limited to {limit}; 3 steps reported; a host waited"
    )
    (read,) = (one["value"] for one in last["evidence"] if one["name"] == "read train")
    assert read.startswith("60 B by 2 hosts, mode File, read while training in this rehearsal; algo-")
    faults = [one for one in lines if one.get("seen") == "event" and one["name"] == "fault"]
    assert [one["fields"]["what"] for one in faults] == ["slowed", "read"]
    for one in faults:
        EVENT.validate({"smdp_event": 1, "event": "fault", "time": 0, **one["fields"]})


@needs_fuse
@pytest.mark.runs
def test_slow_input_that_the_job_does_not_read_says_nothing(folder: Path) -> None:
    write_job(folder, JOB, "print('reads nothing')")
    ran = command_in(folder)("rehearse", "slow-input", *TWO)
    expected = "INCONCLUSIVE  the job read nothing from its channels while it trained, so nothing was slow"
    assert verdict(ran.stdout) == expected
    write_job(folder, JOB, "raise SystemExit('no')")
    ran = command_in(folder)("rehearse", "slow-input", *TWO)
    assert verdict(ran.stdout).startswith("FAIL  the job failed with input limited to 20.0 MB/s and 20 ms")


def test_slow_input_is_refused_without_a_channel(folder: Path) -> None:
    text = JOB.replace('channels:\n  train: {s3: "s3://bucket/train"}\n', "").partition("local:")[0]
    write_job(folder, text, READS)
    ran = command_in(folder)("rehearse", "slow-input", *TWO)
    assert ran.returncode == ExitCode.USAGE
    assert "small has no input channel to slow: add one to `channels:`" in " ".join(ran.stderr.split())


def test_slow_input_is_refused_where_channels_cannot_be_mounted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMDP_LOCAL_ISOLATION", "tree")
    write_job(folder, JOB, READS)
    ran = command_in(folder)("rehearse", "slow-input", *TWO)
    assert ran.returncode == ExitCode.ENVIRONMENT
    expected = (
        "input channels cannot be slowed on this machine (SMDP_LOCAL_ISOLATION=tree is set): remove the variable "
        "(`unset SMDP_LOCAL_ISOLATION`)"
    )
    assert expected in " ".join(ran.stderr.split())
