"""Writes the event ``timing`` (docs/reference/events.md) for this rank, every SMDP_TIMING_S seconds and at its end."""

import atexit
import json
import math
import os
import threading
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar

from .. import tracking
from ..phases import PHASES
from .clock import Clock, new_clock
from .event_pipe import EventPipe, event_pipe
from .loader_work import Loading, rank_of_this_process

VARIABLE = "SMDP_TIMING_S"
DEFAULT_S = 5.0
_COUNTERS = "SMDP_COUNTERS_S"  # the period of the engine's own event
_COUNTERS_BY_DEFAULT = "SMDP_TIMING_COUNTERS"
_SHORTEST_S, _LONGEST_S = 0.05, 86400.0
_LONGEST_LINE = 4096  # PIPE_BUF: a longer line could mix with the engine's
_WRITE_TIMEOUT_S = 1.0
_BEGIN_S = 0.5  # the first window begins at most so long before the training
_UNIT_NS = 10_000  # times are written in steps of 0.01 ms

_Key = TypeVar("_Key")

#: Returns more fields of the event, for the window that ends now. Called in the emitting thread.
Source = Callable[[], Dict[str, Any]]


class Correction(NamedTuple):
    """What the clock cannot see, since the start. ``moves``: nanoseconds that it counted in the first phase and that
    belong to the second. The numbers are added to the clock's."""

    moves: Dict[Tuple[int, int], int]
    batches: int
    samples: int
    steps: Dict[int, int]

    @property
    def is_used(self) -> bool:
        """As ``Clock.is_used``; the first batch may still be awaited."""
        return bool(self.batches or self.steps or any(self.moves.values()))


_NO_CORRECTION = Correction({}, 0, 0, {})


class Emission:
    """The clock of this rank and the thread that writes its events."""

    def __init__(self, pipe: EventPipe, rank: int, period_s: float) -> None:
        self.clock = new_clock()
        self.loading = Loading()
        self._pipe = pipe
        self._rank = rank
        self._period_s = period_s
        self._sources: List[Source] = []
        self._correct: Callable[[], Correction] = lambda: _NO_CORRECTION
        self._before = _Totals(self.clock, self.loading, _NO_CORRECTION, None)
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_own = True

    def add_source(self, source: Source) -> None:
        """Add the source's fields to every event. An event without them is written if it raises an exception."""
        self._sources.append(source)

    def correct(self, read: Callable[[], Correction]) -> None:
        """Apply this correction, read in the emitting thread. It is the one before if ``read`` raises an exception."""
        self._correct = read

    def begin(self) -> None:
        os.register_at_fork(after_in_child=self._in_child)
        if self._rank == 0:
            tracking.close_at_exit()  # after `_end`, which is registered later and so called earlier
        atexit.register(self._end)
        threading.Thread(target=self._run, name="smdp-timing", daemon=True).start()

    def emit(self) -> None:
        """Write the event of the window that ends now. Its numbers are part of the next window if the entrypoint does
        not read the pipe."""
        with self._lock:
            try:
                correction = self._correct()
            except Exception:
                correction = self._before.correction
            if not (self.clock.is_used or correction.is_used):
                return
            now = _Totals(self.clock, self.loading, correction, self._before)
            line = self._line(now)
            if len(line) <= _LONGEST_LINE and self._pipe.write(line, _WRITE_TIMEOUT_S):
                self._before = now
                if self._rank == 0 and "SMDP_TRACKING" in os.environ:
                    tracking.report(line.decode().rstrip())

    def _line(self, now: "_Totals") -> bytes:
        fields: Dict[str, Any] = {
            "smdp_event": 1,
            "event": "timing",
            "time": round(time.time(), 3),
            "rank": self._rank,
            **now.since(self._before),
        }
        for source in self._sources:
            try:
                fields.update(source())
            except Exception:  # noqa: S112 (a number that cannot be read is absent)
                continue
        return json.dumps(fields).encode() + b"\n"

    def _run(self) -> None:
        while self._is_starting() and not self._ended.wait(min(self._period_s, _BEGIN_S)):
            pass
        while not self._ended.wait(self._period_s):
            self.emit()

    def _is_starting(self) -> bool:
        """Whether the training has not begun. Then the first window begins here: the time in which the script starts
        would be most of a short run. Its fetches count from the start, because they are ahead of the first batch."""
        with self._lock:
            before = self._before
            now = _Totals(self.clock, self.loading, before.correction, before)
            try:
                is_used = self.clock.is_used or self._correct().is_used
            except Exception:
                is_used = True
            if not is_used:
                now._load = before._load
                self._before = now
            return not is_used

    def _end(self) -> None:
        if self._is_own:
            self._ended.set()
            self.emit()

    def _in_child(self) -> None:
        # Only the forking thread exists in the child: another one may have held the lock.
        self._is_own = False
        self.clock.stop()
        _leave_counters()


class _Totals:
    """Everything that is counted, at one moment."""

    def __init__(self, clock: Clock, loading: Loading, correction: Correction, before: "Optional[_Totals]") -> None:
        self.correction = correction
        self._clock = clock.read()
        self._load = loading.read()
        self._workers = clock.workers
        self._moved: Dict[Tuple[int, int], int] = dict(before._moved) if before else {}
        self._phases = list(self._clock.phases)
        for (source, target), amount in self._moved.items():
            self._move(source, target, amount)
        if before:
            self._move_more(before)

    def _move_more(self, before: "_Totals") -> None:
        """Move no more than the window has, so that no time is negative: the rest is moved in later windows."""
        for (source, target), amount in _sum(self.correction.moves, self._clock.moves).items():
            moved = self._moved.get((source, target), 0)
            more = min(amount - moved, self._phases[source] - before._phases[source])
            if more > 0:
                self._move(source, target, more)
                self._moved[source, target] = moved + more

    def _move(self, source: int, target: int, amount: int) -> None:
        self._phases[source] -= amount
        self._phases[target] += amount

    def since(self, before: "_Totals") -> Dict[str, Any]:
        """The event's fields for the window from ``before`` to this moment."""
        now, then = self._clock, before._clock
        units = [_units(new) - _units(old) for new, old in zip(self._phases, before._phases)]
        more, fewer = self.correction, before.correction
        steps = _sum(now.steps, more.steps)
        earlier = _sum(then.steps, fewer.steps)
        fields: Dict[str, Any] = {
            "window": _seconds(sum(units)),
            "steps": max((count - earlier.get(key, 0) for key, count in steps.items()), default=0),
            "samples": now.samples - then.samples + more.samples - fewer.samples,
            "batches": now.batches - then.batches + more.batches - fewer.batches,
            "checkpoints": now.checkpoints - then.checkpoints,
        }
        fields.update((f"{name}_s", _seconds(value)) for name, value in zip(PHASES, units))
        for name, total in self._load.items():
            old = before._load.get(name, 0)
            fields[name] = _seconds(_units(total) - _units(old)) if name.endswith("_s") else total - old
        if self._workers >= 0:
            fields["load_workers"] = self._workers
        return fields


def _sum(some: Dict[_Key, int], others: Dict[_Key, int]) -> Dict[_Key, int]:
    return {key: some.get(key, 0) + others.get(key, 0) for key in some.keys() | others.keys()}


def _units(nanoseconds: int) -> int:
    return nanoseconds // _UNIT_NS


def _seconds(units: int) -> float:
    return round(units * _UNIT_NS / 1e9, 5)


_emission: Optional[Emission] = None


def start() -> Optional[Emission]:
    """Measure this process from here on, if it is a rank of a job. The calling thread is the training thread.

    A second call returns the same object. None: the process is not a rank (no event pipe, or a process that a rank
    started), or SMDP_TIMING_S is 0.

    Raises:
        ValueError: SMDP_TIMING_S or RANK is not a number.
    """
    global _emission  # noqa: PLW0603 (a process has one clock, and several frameworks may measure with it)
    if _emission is not None:
        return _emission if _emission.clock.owner is not None else None
    period_s = timing_period()
    pipe = event_pipe() if period_s else None
    if pipe is None or rank_of_this_process() not in (None, os.getpid()):
        _leave_counters()
        return None
    _emission = Emission(pipe, int(os.environ["RANK"]), period_s)
    _emission.begin()
    _count_by_default(period_s)
    return _emission


def timing_period() -> float:
    """SMDP_TIMING_S, the seconds between two events; 0: measure nothing. Raises ValueError."""
    text = os.environ.get(VARIABLE) or str(DEFAULT_S)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise ValueError(f"{VARIABLE} must be a number of seconds, found {text[:100]!r}")
    return min(max(seconds, _SHORTEST_S), _LONGEST_S) if seconds else 0.0


def _count_by_default(period_s: float) -> None:
    """Have the engine, which reads the environment when a group is created, write its own event as often."""
    if _COUNTERS not in os.environ:
        os.environ[_COUNTERS] = f"{period_s:g}"
        os.environ[_COUNTERS_BY_DEFAULT] = "1"


def _leave_counters() -> None:
    """In a process that a rank started: without the event pipe, the engine would print its events as text."""
    if os.environ.pop(_COUNTERS_BY_DEFAULT, None):
        os.environ.pop(_COUNTERS, None)
