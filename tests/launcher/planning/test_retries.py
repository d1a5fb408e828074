"""Which failures are retried, and what the request says about hangs and retries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.outcome import Outcome, outcome
from smdp_launch.jobs.retries import RetryPolicy, failure_kind
from tests.conftest import JOB, write_job
from tests.support.jobs.plans import plan_of

CHECKPOINT = 'checkpoint: {s3: "s3://bucket/checkpoints"}\n'


def failed(reason: str) -> Outcome:
    return outcome({"TrainingJobStatus": "Failed", "FailureReason": reason})


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (
            "AlgorithmError: hang: rank 3 on algo-2 has made no progress for 61 s: it is in forward, exit code: 1",
            "hang",
        ),
        ("InternalServerError: We encountered an internal error. Please try again.", "hardware"),
        ("AlgorithmError: host algo-2 was lost: it sent nothing for 10 s. Its container was killed", "hardware"),
        ("AlgorithmError: This host's GPU driver does not answer: nvidia-smi --list-gpus failed", "hardware"),
        (
            "AlgorithmError: RuntimeError: CUDA error: uncorrectable ECC error encountered (rank 1 on algo-1)",
            "hardware",
        ),
        ("AlgorithmError: ValueError: no such digit (rank 2 on algo-2, exit code 1)", None),
        ("AlgorithmError: RuntimeError: CUDA error: out of memory (rank 2 on algo-2, exit code 1)", None),
        ("AlgorithmError: RuntimeError: the pool may hang: rank 1 is late (rank 0 on algo-1, exit code 1)", None),
        ("CapacityError: Unable to provision requested ML compute capacity.", None),
        ("", None),
    ],
)
def test_kind_of_a_failure_comes_from_its_reason(reason: str, kind: str | None) -> None:
    assert failure_kind(failed(reason)) == kind


@pytest.mark.parametrize(
    ("secondary", "kind"),
    [("MaxWaitTimeExceeded", "spot"), ("Interrupted", "spot"), ("MaxRuntimeExceeded", None), ("Stopped", None)],
)
def test_job_without_spot_capacity_is_retried_and_a_stopped_one_is_not(secondary: str, kind: str | None) -> None:
    assert failure_kind(outcome({"TrainingJobStatus": "Stopped", "SecondaryStatus": secondary})) == kind


def policy(**environment: str) -> RetryPolicy | None:
    return RetryPolicy.of({"Environment": environment})


def test_policy_is_read_from_the_job() -> None:
    assert policy() is None
    assert policy(SMDP_RETRIES="3:hang,spot") == RetryPolicy(frozenset({"hang", "spot"}), 3)
    assert policy(SMDP_RETRIES="3:hang", SMDP_RETRY="2") == RetryPolicy(frozenset({"hang"}), 3, 2)


@pytest.mark.parametrize("text", ["", "3", "hang", "x:hang", "3:", "-1:hang", "3:hang spot", "1000:hang", "٣:hang"])
def test_malformed_policy_is_none(text: str) -> None:
    assert policy(SMDP_RETRIES=text) is None
    assert policy(SMDP_RETRIES="3:hang", SMDP_RETRY="two") is None


def test_policy_ends_after_its_retries_and_ignores_other_failures() -> None:
    hang = failed("AlgorithmError: hang: rank 0 on algo-1 has made no progress for 61 s")
    on = frozenset({"hang"})
    assert RetryPolicy(on, 2, 0).retries(hang) == "hang"
    assert RetryPolicy(on, 2, 1).retries(hang) == "hang"
    assert RetryPolicy(on, 2, 2).retries(hang) is None
    assert RetryPolicy(frozenset({"spot"}), 2).retries(hang) is None
    assert RetryPolicy(on, 2).retries(Outcome("Completed", ExitCode.OK, "completed")) is None


@pytest.mark.parametrize(("at_most", "jobs"), [(1, "1 more job"), (2, "2 more jobs")])
def test_plan_counts_the_jobs_of_retries(tmp_path: Path, at_most: int, jobs: str) -> None:
    text = f"{JOB}{CHECKPOINT}retries: {{on: [hardware], at_most: {at_most}}}\n"
    effects = plan_of(write_job(tmp_path, text)).side_effects
    assert f"up to {jobs} after failures (hardware), each billed" in effects


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("", {}),
        ("hang: {after: 300}\n", {"SMDP_HANG_AFTER_S": "300"}),
        ("hang: {action: ignore, factor: 2.5}\n", {"SMDP_HANG": "ignore", "SMDP_HANG_FACTOR": "2.5"}),
        (f"{CHECKPOINT}retries: {{on: [spot, hardware]}}\n", {"SMDP_RETRIES": "3:hardware,spot"}),
        (f"{CHECKPOINT}retries: {{on: [hang], at_most: 5}}\n", {"SMDP_HANG": "end", "SMDP_RETRIES": "5:hang"}),
    ],
)
def test_request_carries_the_policy(tmp_path: Path, text: str, variables: dict[str, str]) -> None:
    request: dict[str, Any] = dict(plan_of(write_job(tmp_path, JOB + text)).request)
    assert {name: value for name, value in request["Environment"].items() if name != "SMDP_ENGINE"} == variables
