"""When a failed job is resumed without a command of the user: the policy ``retries`` of its job file.

The request carries the policy in a variable, so that each follower of the job knows it, on any machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.status.description import describe_training_job
from smdp_launch.request.environment import RETRIES_VARIABLE

#: In a resumed job: the number of this retry, from 1.
RETRY_VARIABLE = "SMDP_RETRY"

_POLICY = re.compile(r"(?P<at_most>[0-9]{1,3}):(?P<on>[a-z,]+)")
#: The entrypoint's failure text for a hang starts so; SageMaker puts the kind of the error before it.
_HANG = re.compile(r"(?:AlgorithmError: )?hang: rank ")
#: Texts of the entrypoint, of the NVIDIA driver and of SageMaker for a broken host.
_HARDWARE = re.compile(
    r"InternalServerError|We encountered an internal error|unhealthy host|host \S+ was lost: "
    r"|GPU driver does not answer|which has GPUs, but the container sees none"
    r"|uncorrectable (?:NVLink|ECC) error|\bXid\b|device-side ECC|CUDA error: (?:hardware|unknown error)"
)
#: The entrypoint's failure text for a worker that lacked memory, or that someone killed.
_KILLED = re.compile(r"rank \d+ on \S+ was killed by SIGKILL")


@dataclass(frozen=True)
class RetryPolicy:
    """``retries`` of the job file. ``done``: how many retries the job comes after."""

    on: frozenset[str]
    at_most: int
    done: int = 0

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> RetryPolicy | None:
        """The policy in DescribeTrainingJob's answer; None for a job without one."""
        variables = described.get("Environment", {})
        policy = _POLICY.fullmatch(variables.get(RETRIES_VARIABLE, ""))
        done = variables.get(RETRY_VARIABLE, "0")
        if policy is None or not (done.isascii() and done.isdecimal()):
            return None
        return cls(frozenset(policy["on"].split(",")), int(policy["at_most"]), int(done))

    def retries(self, ended: Outcome) -> str | None:
        """The kind of failure for which the job is resumed now; None if it is not."""
        kind = failure_kind(ended)
        return kind if kind in self.on and self.done < self.at_most else None


@dataclass(frozen=True)
class Retry:
    """A retry that is due now: its number, from 1, of ``at_most``, after a failure of the kind ``after``."""

    number: int
    at_most: int
    after: str


def due_retry(clients: Clients, job: str, ended: Outcome) -> Retry | None:
    """The retry of ``job``, which has ended so; None if it has succeeded, or has had its retries.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    if ended.status == "Completed":
        return None
    policy = RetryPolicy.of(describe_training_job(clients, job))
    kind = policy.retries(ended) if policy is not None else None
    return Retry(policy.done + 1, policy.at_most, kind) if policy is not None and kind is not None else None


def failure_kind(ended: Outcome) -> str | None:
    """``hang``, ``spot`` or ``hardware``; None for success, a stop by the user, and an error of the script."""
    if ended.exit_code is ExitCode.SPOT_GAVE_UP:
        return "spot"
    if ended.status != "Failed":
        return None
    if _HANG.match(ended.reason):
        return "hang"
    return "hardware" if _HARDWARE.search(ended.reason) else None


def is_from_outside(ended: Outcome) -> bool:
    """Whether the job failed, and probably not because of an error of the script."""
    return ended.status == "Failed" and (failure_kind(ended) is not None or _KILLED.search(ended.reason) is not None)
