"""What a job with slow input read, how long it waited, and what the diagnosis of the run found, from its events."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.catalog.faults import EVENT
from smdp_launch.diagnosis.advice import advice
from smdp_launch.diagnosis.texts import figures, sentence
from smdp_launch.diagnosis.verdict import Verdict, diagnose
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.run import add_event
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.units import count, listed, size

Row = tuple[str, str]

#: The figures of the diagnosis that show why a job waits for its input.
_FIGURES = ("step", "blamed", "sure", "a batch", "loader workers", "batches/s")


@dataclass
class Reading:
    """Observes the events of a job. All times in seconds, all amounts in bytes."""

    first_step: int | None = None
    last_step: int | None = None
    unlimited: tuple[str, ...] = ()  # channels without a limit
    reads: list[Mapping[str, Any]] = field(default_factory=list)  # one for each host and channel
    metrics: RunMetrics = field(default_factory=RunMetrics)

    def observe_step(self, step: int) -> None:
        self.first_step = step if self.first_step is None else min(self.first_step, step)
        self.last_step = step if self.last_step is None else max(self.last_step, step)

    def observe(self, event: JobEvent) -> None:
        fields = event.fields
        if event.name != EVENT:
            add_event(self.metrics, event)
        elif fields.get("what") == "slowed":
            self.unlimited = tuple(map(str, _list(fields.get("unlimited"))))
        elif fields.get("what") == "read":
            self.reads = [one for one in _list(fields.get("reads")) if isinstance(one, dict)]

    def diagnosis(self) -> Verdict:
        return diagnose(self.metrics)

    @property
    def has_bytes(self) -> bool:
        return any(amount(one.get("bytes")) for one in self.reads)

    @property
    def steps(self) -> str:
        """Such as `120 steps`; steps that the script did not report are unknown."""
        if self.last_step is None:
            return "it reported no step"
        return f"{count(self.last_step, 'step')} reported"

    @property
    def waited(self) -> float:
        """The longest time in which readers of one host waited for bytes of a channel."""
        return max((amount(one.get("seconds")) for one in self.reads), default=0.0)

    def rows(self) -> Iterator[Row]:
        for name in dict.fromkeys(str(one.get("channel")) for one in self.reads):
            of_channel = [one for one in self.reads if str(one.get("channel")) == name]
            total = sum(int(amount(one.get("bytes"))) for one in of_channel)
            slowest = max(of_channel, key=lambda one: amount(one.get("seconds")))
            mode = str(of_channel[0].get("mode"))
            text = f"{size(total)} by {count(len(of_channel), 'host')}, mode {mode}"
            if mode == "File":
                text += ", read while training in this rehearsal"
            seconds = amount(slowest.get("seconds"))
            yield f"read {name}", f"{text}; {slowest.get('host')} waited {seconds:.1f} s for bytes"
        if self.unlimited:
            yield "not slowed", f"{listed(self.unlimited)}: the job may write to it"
        found = self.diagnosis()
        yield "diagnosis", sentence(found)
        yield from ((name, value) for name, value in figures(found) if name in _FIGURES)
        yield from (("", one) for one in found.missing)


def is_source(found: Verdict) -> bool:
    """Whether the storage of the input holds the job back: all of it, or the workers that the others wait for."""
    of_slow = found.spends == "input" and found.loading is not None and found.loading.cause == "source"
    return found.cause == "source" or (found.cause in ("slow_worker", "slow_host") and of_slow)


def is_loader(found: Verdict) -> bool:
    """Whether the loader holds the job back, and not what it reads from."""
    return found.cause in ("decoding", "workers")


def first_advice(found: Verdict) -> str:
    """An imperative; empty if there is none."""
    return next(iter(advice(found)), "")


def amount(value: object) -> float:
    """``value`` if it is a number that is 0 or more, else 0: a script may send anything."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < math.inf else 0.0  # type: ignore[operator, arg-type]


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []
