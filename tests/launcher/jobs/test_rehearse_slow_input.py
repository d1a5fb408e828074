"""`rehearse slow-input`: a local job whose channels are slow."""

from __future__ import annotations

import json
import re
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
LOADS = """\
import os
from pathlib import Path
import torch
from torch.utils.data import DataLoader, Dataset
from smdp_engine import progress
class Files(Dataset):
    path = Path(os.environ["SM_CHANNEL_TRAIN"]) / "part-0"
    def __len__(self):
        return 20
    def __getitem__(self, index):
        return torch.tensor([float(len(self.path.read_bytes()) + index)])
torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step, batch in enumerate(DataLoader(Files(), batch_size=4), 1):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    progress.step(step, 5)
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
    assert last["verdict"] == "INCONCLUSIVE"  # the script uses no framework, so no worker measures its steps
    assert re.match(
        r"a host waited \d+\.\d s for bytes, but what held the job back is unknown: The workers sent no timing event",
        last["reason"],
    )
    (read,) = (one["value"] for one in last["evidence"] if one["name"] == "read train")
    assert read.startswith("60 B by 2 hosts, mode File, read while training in this rehearsal; algo-")
    faults = [one for one in lines if one.get("seen") == "event" and one["name"] == "fault"]
    assert [one["fields"]["what"] for one in faults] == ["slowed", "read"]
    for one in faults:
        EVENT.validate({"smdp_event": 1, "event": "fault", "time": 0, **one["fields"]})


@pytest.mark.runs
@needs_fuse
def test_job_that_waits_for_its_slow_channel_passes_with_the_diagnosis(folder: Path) -> None:
    write_job(folder, JOB + 'environment: {SMDP_TIMING_S: "1"}\n', LOADS)
    one = ("--hosts", "1", "--workers-per-host", "1")
    # Each batch waits 2 s for four files, which is far more than everything else in a step.
    arguments = ("rehearse", "slow-input", "--rate", "0MB", "--latency", "500ms", *one, "--json")
    ran = command_in(folder)(*arguments, timeout=240)
    last = json.loads(ran.stdout.splitlines()[-1])
    validator("rehearsal").validate(last)
    assert (last["verdict"], ran.returncode) == ("PASS", ExitCode.OK), last
    assert "; 5 steps reported; a host waited" in last["reason"]
    assert re.search(r"Bound by source: (9\d|100) % of the time.* at most \d+ times the throughput", last["reason"])
    evidence = {one["name"]: one["value"] for one in last["evidence"]}
    assert evidence["diagnosis"] in last["reason"]
    assert "blocked" in evidence["a batch"]
    assert evidence["loader workers"].startswith("0: the training thread loads in next()")


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
