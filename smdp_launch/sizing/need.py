"""How many bytes a second a job needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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


@dataclass(frozen=True)
class MeasuredInput:
    """What a run of a job would have read if no worker had waited for input.

    Args:
        job: the run.
        is_local: it ran on this machine, at the speed of CPUs.
        mb_s: of all hosts together, caches of the hosts included.
        hosts: that read.
        channels: MB/s of each channel whose bytes the hosts count, without their caches.
    """

    job: str
    is_local: bool
    mb_s: float
    hosts: int
    channels: Mapping[str, float] = field(default_factory=dict)
