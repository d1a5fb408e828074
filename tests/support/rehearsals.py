"""Two recorded rehearsals, as the events of a follower."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from smdp_launch.catalog.faults import EVENT, Fault
from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.jobs.follow import Ended, FollowEvent, StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent, LogLine
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.planning.plan import LocalRun, Plan
from smdp_launch.planning.prepare import local_run, make_plan
from smdp_launch.rehearsals.rehearsal import Rehearsal
from smdp_launch.rehearsals.report import Report, report

NOW = datetime(2026, 11, 22, 10, 7, 31, tzinfo=timezone.utc)
ZERO = 1_795_342_055_000  # milliseconds since 1970: when the recorded jobs were created
SPOT = Fault("spot", "algo-1", 0, step=6, seconds=2.0)
KILL = Fault("kill", "algo-2", 3)
#: The same text with every Python version.
NOT_APPLIED = ("role training, region us-east-1, volumes of 30 GB", "spot: there is no cloud here to do it")
REASON = "AlgorithmError: rank 3 on algo-2 was ended by SIGKILL"


def status(name: str, at: int, message: str = "") -> StatusChanged:
    return StatusChanged(name, message, ZERO + at)


def step(number: int, at: int) -> JobEvent:
    return JobEvent("algo-1", "step", {"step": number, "steps": 12}, ZERO + at)


def spot() -> Iterator[FollowEvent]:
    """Six steps, an interruption, a restart with one checkpoint file, and steps 7 to 12."""
    yield status("Pending", 0, "Preparing the simulated hosts for training")
    yield status("Downloading", 889, "Downloading input data")
    yield status("Training", 1566, "Training in progress on 2 simulated host(s).")
    yield from (step(number, 2600 + 200 * number) for number in range(1, 7))
    yield JobEvent("algo-1", EVENT, {"kind": "spot", "what": "interrupted", "grace": 120.0}, ZERO + 3837)
    yield status("Interrupted", 4019, "no capacity yet")
    yield status("Interrupted", 4019, "its spot capacity was taken away")
    yield status("Starting", 6138)
    yield status("Downloading", 6143)
    yield status("Training", 6680)
    yield from (JobEvent(host, "checkpoints_restored", {"files": 1}, ZERO + 6708) for host in ("algo-1", "algo-2"))
    yield from (step(number, 6600 + 200 * number) for number in range(7, 13))
    yield status("Uploading", 9317)
    yield status("Completed", 9484)
    ended = {"TrainingJobStatus": "Completed", "TrainingTimeInSeconds": 9, "BillableTimeInSeconds": 7}
    yield Ended(outcome(ended))


def kill(reason: str = REASON, line: str = "step 1 done") -> Iterator[FollowEvent]:
    yield status("Pending", 0)
    yield status("Training", 1000)
    yield LogLine("algo-1", 0, line, ZERO + 1900)
    yield step(1, 2000)
    yield JobEvent("algo-2", EVENT, {"kind": "kill", "what": "killed", "rank": 3}, ZERO + 2250)
    yield status("Failed", 2750, reason)
    yield Ended(outcome({"TrainingJobStatus": "Failed", "FailureReason": reason}))


def planned(fault: Fault, job_file: Path = Path("job.yaml")) -> Plan:
    checked = check_job(job_file, LocalRequest(hosts=2, workers_per_host=2), environ={})
    run: LocalRun = local_run(checked, LocalRequest(hosts=2, workers_per_host=2), 2)
    return make_plan(checked, NOW, 0, replace(run, fault=fault, not_simulated=NOT_APPLIED))


def rehearsal_of(fault: Fault, events: Iterable[FollowEvent]) -> Rehearsal:
    rehearsal = Rehearsal(fault, within=60.0)
    for one in events:
        rehearsal.observe(one)
    return rehearsal


def report_of(fault: Fault, events: Iterable[FollowEvent], job_file: Path = Path("job.yaml")) -> Report:
    return report(planned(fault, job_file), rehearsal_of(fault, events), "1.2.3")
