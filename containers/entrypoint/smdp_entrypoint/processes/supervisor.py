"""The loop that carries a set of children from their start to their end.

One thread does everything: it reads the children's output, sees them end, and passes on stop signals. It never blocks
on a child and never on our own output, so a signal is acted on at once whatever a child writes or does not write.

    running --a stop signal--> stopping: SIGTERM to all, SIGKILL at the end of the budget or at a second signal
    running --a child fails--> settling (others may show that they failed first) --> failing: SIGTERM, then SIGKILL
"""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass, field
from typing import Callable, Sequence

from smdp_entrypoint.processes.child import Child
from smdp_entrypoint.processes.console import Console
from smdp_entrypoint.processes.failure import signal_name
from smdp_entrypoint.processes.reaper import reap_orphans
from smdp_entrypoint.processes.signals import Signals

# Others that failed first may not have ended yet when the first one ends.
SETTLE_S = 0.4
# After a failure the other workers have this long to end by themselves: what they could still save is of a step that
# not all ranks have made, and every second is paid on every host.
FAILURE_GRACE_S = 3.0
# Something that outlives its worker may hold the worker's pipe; its output is read this long after the last end.
_DRAIN_S = 1.0
# A killed process that is still there hangs in the kernel; waiting longer helps nobody.
_GIVE_UP_S = 10.0
_TICK_S = 1.0
# With more output than this not taken by our own reader, the children have to wait with theirs.
_BACKLOG = 1024 * 1024


@dataclass(frozen=True)
class Hooks:
    """Called from the loop: `ended` for each child once its output is read, `failed` once after the settling time
    that follows the first bad end; `others_failed` each turn, whether the children must end because of another host."""

    ended: Callable[[Child], None] = lambda child: None
    failed: Callable[[], None] = lambda: None
    others_failed: Callable[[], bool] = lambda: False


@dataclass
class _Plan:
    """Monotonic times at which something is to be done; None for never."""

    settle: float | None = None
    kill: float | None = None
    give_up: float | None = None
    leave: float | None = None

    def next(self) -> float:
        times = [self.settle, self.kill, self.give_up, self.leave]
        return min(time for time in times if time is not None) if any(times) else float("inf")


@dataclass
class Supervisor:
    """`stop_budget` is in seconds from the arrival of the stop signal. After `run`, `stopped_by` is the number of the
    first stop signal, if there was one, and `told_to_end` holds the children that we signalled."""

    children: Sequence[Child]
    console: Console
    signals: Signals
    stop_budget: float
    hooks: Hooks = field(default_factory=Hooks)
    stopped_by: int | None = None
    told_to_end: set[int] = field(default_factory=set)
    _plan: _Plan = field(default_factory=_Plan)
    _signals_seen: int = 0
    _is_failing: bool = False

    def run(self) -> None:
        try:
            while not self._is_over():
                self._turn()
        finally:
            for child in self.children:
                child.clear(time.time())

    @property
    def _alive(self) -> list[Child]:
        return [child for child in self.children if child.ended is None]

    def _is_over(self) -> bool:
        if self._due(self._plan.give_up):
            self.console.say(f"still there after SIGKILL, left to the system: pids {[c.pid for c in self._alive]}")
            return True
        if self._alive:
            return False
        if self._plan.leave is None:
            self._plan.leave = time.monotonic() + _DRAIN_S
        return all(child.is_silent for child in self.children) or self._due(self._plan.leave)

    def _turn(self) -> None:
        readable = self._wait()
        now = time.time()
        # What one turn finds bears one time, and a child's rest is read with its end: an end never counts as earlier
        # than what the child wrote before it.
        for child in self.children:
            for stream in child.streams:
                if stream.fd in readable:
                    stream.read(now)
        arrived = self.signals.arrived()
        self._look_for_ends(now)
        if signal.SIGCHLD in arrived and os.getpid() == 1:
            reap_orphans(keep={child.pid for child in self.children})
        self._follow_signals()
        self._follow_others()
        self._follow_plan()
        self.console.flush()

    def _wait(self) -> set[int]:
        poll = select.poll()
        poll.register(self.signals.wakeup, select.POLLIN)
        if self.console.pending:
            poll.register(self.console.fd, select.POLLOUT)
        if self.console.pending < _BACKLOG:
            for stream in (stream for child in self.children for stream in child.streams):
                if stream.fd is not None:
                    poll.register(stream.fd, select.POLLIN)
        timeout = min(_TICK_S, max(0.0, self._plan.next() - time.monotonic()))
        return {fd for fd, _ in poll.poll(timeout * 1000 + 1)}

    def _look_for_ends(self, now: float) -> None:
        for child in [child for child in self._alive if child.look(now)]:
            self.hooks.ended(child)
            if child.ended and not child.ended.well and child.pid not in self.told_to_end:
                self._note_failure()

    def _note_failure(self) -> None:
        if self._plan.settle is None and not self._is_failing:
            self._plan.settle = time.monotonic() + SETTLE_S

    def _follow_signals(self) -> None:
        arrived = self.signals.stops[self._signals_seen :]
        self._signals_seen += len(arrived)
        for signum, at in arrived:
            if self.stopped_by is None:
                self._stop(signum, at)
            else:
                self._kill(f"a second stop signal ({signal_name(signum)})")

    def _stop(self, signum: int, at: float) -> None:
        self.stopped_by = signum
        self.console.say(
            f"{signal_name(signum)} received: passed on as SIGTERM, {self.stop_budget:g} s to save and end"
        )
        self._end_all()
        self._plan.kill = min(at + self.stop_budget, self._plan.kill or float("inf"))

    def _follow_others(self) -> None:
        if self._is_failing or not self._alive or not self.hooks.others_failed():
            return
        self._plan.settle = None
        self._is_failing = True
        self._end_the_rest("another host failed: ending the workers here")

    def _follow_plan(self) -> None:
        if self._plan.settle is not None and (self._due(self._plan.settle) or not self._alive):
            self._plan.settle = None
            self._fail()
        if self._alive and self._due(self._plan.kill):
            self._kill("the time is over")

    def _fail(self) -> None:
        self._is_failing = True
        self.hooks.failed()
        self._end_the_rest("ending the other workers")

    def _end_the_rest(self, why: str) -> None:
        if self._alive and self.stopped_by is None:
            self.console.say(f"{why}: SIGTERM now, SIGKILL in {FAILURE_GRACE_S:g} s")
            self._end_all()
            self._plan.kill = time.monotonic() + FAILURE_GRACE_S

    def _end_all(self) -> None:
        for child in self.children:
            child.signal_group(signal.SIGTERM)
        self.told_to_end.update(child.pid for child in self._alive)

    def _kill(self, reason: str) -> None:
        self._plan.kill = None
        self.console.say(f"{reason}: SIGKILL to {len(self._alive)} process(es) and what they started")
        for child in self.children:
            child.signal_group(signal.SIGKILL)
        self.told_to_end.update(child.pid for child in self._alive)
        self._plan.give_up = time.monotonic() + _GIVE_UP_S

    @staticmethod
    def _due(at: float | None) -> bool:
        return at is not None and time.monotonic() >= at
