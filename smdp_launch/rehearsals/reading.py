"""What a job with slow input read and how long it waited, from its events.

`rows` is the place for everything that the report says about input: a diagnosis of the run adds its rows there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.units import count, listed, size

Row = tuple[str, str]


@dataclass
class Reading:
    """Observes the events of a job. All times in seconds, all amounts in bytes."""

    first_step: int | None = None
    last_step: int | None = None
    unlimited: tuple[str, ...] = ()  # channels without a limit
    reads: list[Mapping[str, Any]] = field(default_factory=list)  # one for each host and channel
    _loading: dict[int, tuple[float, float]] = field(default_factory=dict)  # by rank: in the loader, and in all

    def observe_step(self, step: int) -> None:
        self.first_step = step if self.first_step is None else min(self.first_step, step)
        self.last_step = step if self.last_step is None else max(self.last_step, step)

    def observe(self, event: JobEvent) -> None:
        """Take a `fault` event of slow input, or a `timing` event of a rank."""
        fields = event.fields
        if event.name == "timing":
            rank, waited, window = fields.get("rank"), amount(fields.get("input_s")), amount(fields.get("window"))
            if isinstance(rank, int) and not isinstance(rank, bool):
                before = self._loading.get(rank, (0.0, 0.0))
                self._loading[rank] = (before[0] + waited, before[1] + window)
        elif fields.get("what") == "slowed":
            self.unlimited = tuple(map(str, _list(fields.get("unlimited"))))
        elif fields.get("what") == "read":
            self.reads = [one for one in _list(fields.get("reads")) if isinstance(one, dict)]

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
        if self._loading:
            rank, (waited, window) = max(self._loading.items(), key=lambda one: one[1][0])
            share = f": {100 * waited / window:.0f} %" if window else ""
            yield "loader", f"rank {rank} waited longest, {waited:.1f} of {window:.1f} s in the data loader{share}"


def amount(value: object) -> float:
    """``value`` if it is a number that is 0 or more, else 0: a script may send anything."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < math.inf else 0.0  # type: ignore[operator, arg-type]


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else []
