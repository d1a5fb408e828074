"""Seconds of a step and bytes of its gradients from the events that a run left. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

#: Steps at the start that are left out: a fifth of them, at most so many.
_WARM_UP = 10
_FEWEST = 2  # of steps that are left


@dataclass(frozen=True)
class RunEvents:
    """What a run reported.

    Args:
        job: its name.
        instance_type: None for a run on this machine.
        ranks: None where the run did not say.
        steps: seconds since 1970 and the step that rank 0 reported then.
        exchanged: bytes that the engine of rank 0 exchanged in the whole run; None without its counters.
    """

    job: str
    instance_type: str | None
    ranks: int | None
    steps: Sequence[tuple[float, int]]
    exchanged: int | None


@dataclass(frozen=True)
class Measured:
    """Args:
    seconds: of a step, the median.
    steps: that it is the median of.
    warm_up: steps before them.
    gradient_bytes: of a step; None where that was not counted.
    """

    run: RunEvents
    seconds: float
    steps: int
    warm_up: int
    gradient_bytes: int | None

    @property
    def where(self) -> str:
        """The hardware."""
        ranks = f", {self.run.ranks} ranks" if self.run.ranks is not None else ""
        return f"{self.run.instance_type or 'CPUs of this machine'}{ranks}"


def measured(run: RunEvents) -> Measured | None:
    """None where the run reported too few steps."""
    lengths = _lengths(run.steps)
    warm_up = min(_WARM_UP, max(1, len(lengths) // 5)) if len(lengths) > _FEWEST else 0
    kept = lengths[warm_up:]
    if len(kept) < _FEWEST:
        return None
    last = max(step for _, step in run.steps)
    exchanged = round(run.exchanged / last) if run.exchanged and last > 0 else None
    return Measured(run, statistics.median(kept), len(kept), warm_up, exchanged or None)


def _lengths(steps: Sequence[tuple[float, int]]) -> list[float]:
    """Seconds a step between two reports that follow each other; a run that began again has no step between the two."""
    return [
        (after - before) / (step - step_before)
        for (before, step_before), (after, step) in pairwise(steps)
        if step > step_before and after > before
    ]


def step_of(fields: Mapping[str, Any], at: float) -> tuple[float, int] | None:
    """The moment and the number of a ``step`` event; None for one without a number."""
    number, time = fields.get("step"), fields.get("time")
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    told = isinstance(time, int | float) and not isinstance(time, bool) and math.isfinite(time)
    return (float(time) if told and time is not None else at), number


def bytes_of(fields: Mapping[str, Any]) -> int:
    """Of an ``engine`` event."""
    amount = fields.get("bytes")
    return amount if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0 else 0
