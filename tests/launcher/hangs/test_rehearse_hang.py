"""`rehearse hang`: a rank that stops for ever is named, wherever it stops."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from smdp_launch.catalog.faults import EVENT, Fault, Where
from smdp_launch.errors import ExitCode
from smdp_launch.jobs.follow import Ended, FollowEvent, StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.records.history import state_folder
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.localcloud.client.connect import private
from smdp_launch.rehearsals.rehearsal import Rehearsal
from tests.conftest import JOB, command_in, write_job

TRAINS = """\
import time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
from smdp_engine import progress

class Samples(Dataset):
    def __len__(self):
        return 400000
    def __getitem__(self, index):
        return torch.ones(3)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, batch in enumerate(DataLoader(Samples(), batch_size=4, num_workers=1), 1):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step, 100000)
        time.sleep(0.02)
"""
#: What the report says of the rank, and what its stack has.
EXPECTED = {
    "computing": (": it is ", "in hang_for_rehearsal"),
    "collective": (": it waits in recv at ", "in recv"),
    "loader": (": it waits for its loader, whose worker is at ", "in hang_for_rehearsal"),
}


@pytest.mark.torch
@pytest.mark.parametrize(
    ("where", "action", "step"),
    [
        ("computing", "end", 30),
        # Its host does not know its usual step by then.
        pytest.param("computing", "end", 2, marks=pytest.mark.runs),
        pytest.param("collective", "report", 30, marks=pytest.mark.runs),
        pytest.param("loader", "report", 30, marks=pytest.mark.runs),
    ],
)
def test_report_names_the_rank_that_stops(tmp_path: Path, where: str, action: str, step: int) -> None:
    text = f'{JOB}\nhang: {{action: {action}, after: 15, factor: 2}}\nenvironment: {{SMDP_TIMING_S: "0.5"}}\n'
    write_job(tmp_path, text, TRAINS)
    with private(state_folder(tmp_path) / "local"):
        place = ["--hosts", "2", "--workers-per-host", "1", "--at", f"algo-2:1@{step}"]
        ran = command_in(tmp_path)("rehearse", "hang", *place, "--in", where, "--within", "600")
    ended = "and the job ended by itself" if action == "end" else "the job would hang until max_run"
    (line,) = (one for one in ran.stdout.splitlines() if one.startswith(("PASS", "FAIL", "INCONCLUSIVE")))
    assert line.startswith("PASS  the report named rank 1"), ran.stdout + ran.stderr
    assert ended in line
    doing, frame = EXPECTED[where]
    reports = [one for one in ran.stdout.splitlines() if "hang: rank 1 on algo-2 has made no progress" in one]
    assert any(doing in one for one in reports), reports
    assert f" {frame}" in ran.stdout
    assert ran.returncode == ExitCode.OK


def hung(where: Where, events: Iterable[FollowEvent], ends: bool) -> tuple[Rehearsal, list[bool]]:
    """The rehearsal after these events, and whether the job should have been stopped after each."""
    now = [1000.0]
    rehearsal = Rehearsal(Fault("hang", "algo-2", 3, where=where), 60.0, ends, clock=lambda: now[0])
    stops = []
    for event in events:
        rehearsal.observe(event)
        now[0] += 1
        stops.append(rehearsal.should_stop())
    now[0] += 120
    stops.append(rehearsal.should_stop())
    return rehearsal, stops


FAULT = JobEvent("algo-2", EVENT, {"kind": "hang", "what": "hung", "rank": 3, "where": "loader"}, 1_000_000)
NAMED = LogLine("algo-1", None, "hang: rank 3 on algo-2 has made no progress for 61 s: it is at f (a.py:1)", 1_061_000)
OTHER = LogLine("algo-1", None, "hang: rank 0 on algo-1 has made no progress for 61 s: it is at f (a.py:1)", 1_061_000)


def end(status: str, reason: str = "") -> Ended:
    return Ended(outcome({"TrainingJobStatus": status, "FailureReason": reason}))


@pytest.mark.parametrize(
    ("events", "ends", "expected"),
    [
        ([FAULT, NAMED], False, "PASS the report named rank 3; the job would hang"),
        ([FAULT, OTHER], False, "FAIL no report named rank 3 in the 60 s after it had stopped"),
        ([FAULT, NAMED], True, "FAIL a report named rank 3, but the job still ran 60 s after it had stopped"),
    ],
)
def test_job_that_runs_on_is_stopped(events: list[FollowEvent], ends: bool, expected: str) -> None:
    rehearsal, stops = hung("loader", [StatusChanged("Training", "", 900_000), *events], ends)
    assert stops.count(True) == 1
    assert stops[2] == (not ends and NAMED in events)
    rehearsal.observe(end("Stopped"))
    verdict = rehearsal.verdict()
    assert f"{verdict.result} {verdict.reason}".startswith(expected)
    assert json.dumps(rehearsal.to_json())


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([FAULT, NAMED, end("Failed", "hang: rank 3 on algo-2")], "PASS the report named rank 3, and the job ended"),
        ([NAMED, FAULT, end("Failed", "hang: rank 3 on algo-2")], "FAIL the job failed before a report named rank 3"),
        ([FAULT, NAMED, end("Failed", "rank 1 failed")], "FAIL the job failed, but its FailureReason does not name"),
        ([FAULT, end("Failed", "rank 1 failed")], "FAIL the job failed before a report named rank 3"),
        ([FAULT, end("Completed")], "INCONCLUSIVE the job completed, so no rank needed rank 3"),
    ],
)
def test_verdict_of_a_job_that_ended(events: list[FollowEvent], expected: str) -> None:
    rehearsal = Rehearsal(Fault("hang", "algo-2", 3), 60.0, ends=True)
    for event in events:
        rehearsal.observe(event)
    verdict = rehearsal.verdict()
    assert f"{verdict.result} {verdict.reason}".startswith(expected)


def test_rank_without_a_loader_gives_no_verdict() -> None:
    rehearsal = Rehearsal(Fault("hang", "algo-2", 3, where="loader"), 60.0)
    missed = {"kind": "hang", "what": "missed", "host": "algo-2", "rank": 3, "where": "loader"}
    rehearsal.observe(JobEvent("algo-2", EVENT, missed, 1_000_000))
    rehearsal.observe(end("Completed"))
    verdict = rehearsal.verdict()
    assert verdict.result == "INCONCLUSIVE"
    assert "rank 3 had no process of a DataLoader that can stop; pass another --in" in verdict.reason
