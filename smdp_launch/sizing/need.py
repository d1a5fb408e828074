"""How many bytes a second a job needs."""

from __future__ import annotations

from dataclasses import dataclass

from smdp_launch.diagnosis.blame import INPUT
from smdp_launch.diagnosis.verdict import Verdict


@dataclass(frozen=True)
class Need:
    """Args:
    mb_s: of all hosts together, without waiting for input.
    hosts: that read.
    source: where the rate is from.
    data_gb: the data of all channels; None: unknown.
    object_mb: the mean size of an object; None: unknown.
    """

    mb_s: float
    hosts: int
    source: str
    data_gb: float | None = None
    object_mb: float | None = None

    @property
    def host_mb_s(self) -> float:
        return self.mb_s / self.hosts


def measured_mb_s(verdict: Verdict) -> float | None:
    """MB/s that the job would read if no worker waited for input; None if no bytes were measured.

    The bytes are those that the loader read within its fetches, also from caches of the host.
    """
    if verdict.step_s is None or verdict.bytes_step <= 0:
        return None
    waited = sum(verdict.shares.get(cause, 0.0) for cause in INPUT) * verdict.step_s
    useful = max(verdict.step_s - waited, 0.01 * verdict.step_s)
    return verdict.bytes_step / useful / 1e6 if useful > 0 else None
