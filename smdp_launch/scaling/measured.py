"""The seconds of a step and the bytes of its gradients, from the events of a run. Does no I/O."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

#: The first fifth of the steps is ignored, but at most this many.
_WARM_UP = 10
_FEWEST = 2  # steps after the warm-up


@dataclass(frozen=True)
class RunEvents:
    """The events of a run.

    Args:
        job: its name.
        instance_type: None for a local run.
        ranks: None if the run did not report it.
        steps: each step that rank 0 reported, after its time in seconds since 1970.
        exchanged: bytes that the engine of rank 0 exchanged in the whole run; None without its counters.
    """

    job: str
    instance_type: str | None
    ranks: int | None
    steps: Sequence[tuple[float, int]]
    exchanged: int | None


@dataclass(frozen=True)
class Measured:
    """The measurements of a run.

    Args:
        seconds: the median of a step.
        steps: the number of steps measured.
        warm_up: the number of earlier steps, which are ignored.
        gradient_bytes: per step; None if the run did not count them.
    """

    run: RunEvents
    seconds: float
    steps: int
    warm_up: int
    gradient_bytes: int | None

    @property
    def where(self) -> str:
        """The hardware of the run."""
        ranks = f", {self.run.ranks} ranks" if self.run.ranks is not None else ""
        return f"{self.run.instance_type or 'local CPUs'}{ranks}"


def measured(run: RunEvents) -> Measured | None:
    """The measurements of a run; None if it reported too few steps."""
    lengths = _lengths(run.steps)
    warm_up = min(_WARM_UP, max(1, len(lengths) // 5)) if len(lengths) > _FEWEST else 0
    lengths = lengths[warm_up:]
    if len(lengths) < _FEWEST:
        return None
    last = max(step for _, step in run.steps)
    exchanged = round(run.exchanged / last) if run.exchanged and last > 0 else None
    return Measured(run, statistics.median(lengths), len(lengths), warm_up, exchanged or None)


def _lengths(steps: Sequence[tuple[float, int]]) -> list[float]:
    """The seconds per step between consecutive reports, without reports before and after a restart."""
    return [
        (after - before) / (step - step_before)
        for (before, step_before), (after, step) in pairwise(steps)
        if step > step_before and after > before
    ]


def step_of(fields: Mapping[str, Any], at: float) -> tuple[float, int] | None:
    """The time and the number of a ``step`` event; None if it has no number.

    Args:
        at: the time to use if the event has none.
    """
    number, time = fields.get("step"), fields.get("time")
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    is_time = isinstance(time, int | float) and not isinstance(time, bool) and math.isfinite(time)
    return (float(time) if is_time and time is not None else at), number


def bytes_of(fields: Mapping[str, Any]) -> int:
    """The bytes of an ``engine`` event; 0 if it has none."""
    amount = fields.get("bytes")
    return amount if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0 else 0
