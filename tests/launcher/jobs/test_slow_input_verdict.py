"""The verdict of `rehearse slow-input`, from the events of a job: what the diagnosis of the run found decides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from smdp_launch.catalog.faults import EVENT, Fault
from smdp_launch.jobs.follow import Ended, FollowEvent
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.records.outcome import outcome
from smdp_launch.rehearsals.rehearsal import Verdict
from tests.support.numbers.run_events import Event, Step, run_events
from tests.support.rehearsals import rehearsal_of

FAULT = Fault("slow-input", "algo-1", 0, rate=1e6, latency=0.02)
READ = {"host": "algo-1", "channel": "train", "mode": "FastFile", "bytes": 5_000_000, "seconds": 4.2}
LIMIT = "1.0 MB/s and 20 ms before the first bytes of a file on each host"
#: The loader waits for the storage for most of the time of a batch.
SOURCE: Step = {"input": 0.3, "forward": 0.05, "load_batches": 1, "load_s": 0.6, "load_cpu_s": 0.02, "load_workers": 2}
#: The same wait, but two loader workers would hide it behind the step.
ALONE: Step = {"input": 0.2, "forward": 0.2, "load_batches": 1, "load_s": 0.2, "load_cpu_s": 0.02, "load_workers": 0}
#: The loader computes for most of the time of a batch.
DECODES: Step = {
    "input": 0.3,
    "forward": 0.05,
    "load_batches": 1,
    "load_s": 0.6,
    "load_cpu_s": 0.3,
    "load_queued_s": 0.25,
    "load_workers": 2,
}
COMPUTES: Step = {"forward": 0.3, "load_batches": 1, "load_s": 0.1, "load_bytes": 2e6, "load_workers": 2}


def judged(step: Step | None, read: Mapping[str, Any] = READ, status: str = "Completed") -> Verdict:
    ran = run_events(lambda _: step) if step is not None else []
    return rehearsal_of(FAULT, [*_slowed(read, ran), Ended(outcome({"TrainingJobStatus": status}))]).verdict()


def _slowed(read: Mapping[str, Any], ran: list[Event]) -> Iterator[FollowEvent]:
    yield JobEvent("algo-1", EVENT, {"kind": "slow-input", "what": "slowed", "channels": ["train"], "unlimited": []}, 0)
    for name, fields, host, worker, at in ran:
        yield JobEvent(host, name, fields, int(at * 1000), worker=worker)
    yield JobEvent("algo-1", EVENT, {"kind": "slow-input", "what": "read", "reads": [read]}, 0)


def test_job_bound_by_the_source_of_its_input_passes() -> None:
    found = judged(SOURCE)
    assert found.result == "PASS"
    assert found.reason.startswith(
        f"the job completed with input limited to {LIMIT}; it reported no step; a host waited 4.2 s for bytes. "
        "Bound by source: 86 % of the time"
    )
    assert ("diagnosis", found.reason.partition("bytes. ")[2]) in found.evidence
    assert {"step", "blamed", "sure", "a batch"} <= {name for name, _ in found.evidence}


@pytest.mark.parametrize(
    ("step", "cause", "fix"),
    [(ALONE, "workers", "Set num_workers=2"), (DECODES, "decoding", "Decode and resize the samples once")],
)
def test_job_bound_by_its_loader_fails_with_a_fix(step: Step, cause: str, fix: str) -> None:
    found = judged(step)
    assert found.result == "FAIL"
    assert found.reason.startswith(f"the loader holds the job back, and not the channel alone: Bound by {cause}")
    assert fix in found.reason


def test_job_that_the_limit_does_not_hold_back_is_inconclusive() -> None:
    found = judged(COMPUTES)
    assert found.result == "INCONCLUSIVE"
    assert found.reason.startswith(f"input limited to {LIMIT} did not hold the job back: Bound by computing")
    assert found.reason.endswith("Lower --rate, or raise --latency")


def test_job_that_reads_its_data_elsewhere_is_inconclusive() -> None:
    found = judged(COMPUTES, {**READ, "bytes": 0, "seconds": 0})
    assert found.result == "INCONCLUSIVE"
    assert found.reason == (
        "the job read nothing from its channels while it trained, so nothing was slow; "
        "its loader read 8.0 MB a step from elsewhere"
    )


def test_job_without_steps_is_inconclusive_and_says_what_is_missing() -> None:
    found = judged(None)
    assert found.result == "INCONCLUSIVE"
    expected = "a host waited 4.2 s for bytes, but what held the job back is unknown: The log has no event of a job."
    assert found.reason == expected


def test_one_rank_that_waits_for_the_storage_passes_with_its_name() -> None:
    others: Step = {**SOURCE, "input": 0.01, "exchange": 0.29, "load_s": 0.05}
    ran = run_events(lambda rank: SOURCE if rank == 3 else others)
    ended = Ended(outcome({"TrainingJobStatus": "Completed"}))
    found = rehearsal_of(FAULT, [*_slowed(READ, ran), ended]).verdict()
    assert found.result == "PASS"
    assert "Bound by slow worker rank 3 on algo-2" in found.reason


def test_failed_job_fails() -> None:
    assert judged(SOURCE, status="Failed").reason.startswith(f"the job failed with input limited to {LIMIT}")
