"""The loop that supervises a set of children until all have exited.

One thread reads the children's output, notices their exits and forwards stop signals. It never blocks on a child or on
the entrypoint's own output, so it acts on a signal at once.

    running --a stop signal--> stopping: SIGTERM to all, SIGKILL at the end of the budget or at a second signal
    running --a child fails--> settling (another child may have failed first) --> failing: SIGTERM, then SIGKILL

After SIGTERM the loop also waits for the processes that a child leaves: a shell dies of the signal at once, while the
script that it started still saves. It waits only a short time for what a script leaves that exited successfully.
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
from smdp_entrypoint.processes.termination import Termination

# When the first child exits, another one that failed earlier may still be running.
SETTLE_S = 0.4
# After a failure the other workers have this long to exit: they could only save the state of an incomplete step, and
# every second is paid for on every host.
FAILURE_GRACE_S = 3.0
# A process that outlives its worker may keep the worker's pipe open; output is read this long after the last exit.
_DRAIN_S = 1.0
# A killed process that still exists after this time hangs in the kernel.
_GIVE_UP_S = 10.0
_TICK_S = 1.0
# After SIGTERM, the system's processes are searched this often for those below a shell, and those that a child leaves.
# A search among 1000 processes takes about 50 ms of processor time.
_SEARCH_S = 0.5
# The helper processes of a script that has handled SIGTERM have this long to exit.
_HELPERS_GRACE_S = 3.0
# With more output than this still unwritten, no more is read from the children.
_BACKLOG = 1024 * 1024


@dataclass(frozen=True)
class Hooks:
    """Called from the loop: `exited` for each exited child once its output is read; `failed` once, after the settling
    time that follows the first failure; `others_failed` in each turn: why another host's failure, or one of the job
    as a whole, must end the children; None if there is none. `turn` in each turn."""

    exited: Callable[[Child], None] = lambda child: None
    failed: Callable[[], None] = lambda: None
    others_failed: Callable[[], str | None] = lambda: None
    turn: Callable[[], None] = lambda: None


@dataclass
class _Deadlines:
    """Monotonic times of pending actions; None for never."""

    settle: float | None = None
    kill: float | None = None
    give_up: float | None = None
    leave: float | None = None
    search: float | None = None

    def next(self) -> float:
        times = [self.settle, self.kill, self.give_up, self.leave, self.search]
        return min(time for time in times if time is not None) if any(times) else float("inf")


@dataclass
class Supervisor:
    """`stop_budget` is in seconds from the arrival of the stop signal. After `run`, `stopped_by` is the number of the
    first stop signal or None, and `signalled` contains the process IDs of the children that got a signal."""

    children: Sequence[Child]
    console: Console
    signals: Signals
    stop_budget: float
    hooks: Hooks = field(default_factory=Hooks)
    stopped_by: int | None = None
    signalled: set[int] = field(default_factory=set)
    _deadlines: _Deadlines = field(default_factory=_Deadlines)
    _signals_seen: int = 0
    _is_failing: bool = False
    _termination: Termination | None = None
    _left: set[int] = field(default_factory=set)

    def run(self) -> None:
        try:
            while not self._is_over():
                self._turn()
        finally:
            for child in self.children:
                child.clean_up(time.time())

    @property
    def _alive(self) -> list[Child]:
        return [child for child in self.children if child.exit_status is None]

    @property
    def _unfinished(self) -> list[Child]:
        """The children that run, or of which a process that got SIGTERM, or will get it, runs."""
        return [child for child in self.children if child.exit_status is None or child.pid in self._left]

    def _is_over(self) -> bool:
        if self._due(self._deadlines.give_up):
            pids = [child.pid for child in self._unfinished]
            self.console.say(f"these processes, or their child processes, did not exit after SIGKILL: {pids}")
            return True
        if self._unfinished:
            return False
        if self._deadlines.leave is None:
            self._deadlines.leave = time.monotonic() + _DRAIN_S
        return all(child.output_closed for child in self.children) or self._due(self._deadlines.leave)

    def _turn(self) -> None:
        readable = self._wait()
        now, monotonic = time.time(), time.monotonic()
        # All that one turn finds has the same time, and a child's last output is read together with its exit: an exit
        # never has an earlier time than the output before it.
        for child in self.children:
            for stream in child.streams:
                if stream.fd in readable:
                    stream.read(now)
                stream.show_bar(now, monotonic)
        arrived = self.signals.arrived()
        self._check_exits(now)
        if signal.SIGCHLD in arrived and os.getpid() == 1:
            reap_orphans(keep={child.pid for child in self.children})
        self._handle_signals()
        self.hooks.turn()
        self._handle_other_hosts()
        self._handle_deadlines()
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
        timeout = min(_TICK_S, max(0.0, self._deadlines.next() - time.monotonic()))
        return {fd for fd, _ in poll.poll(timeout * 1000 + 1)}

    def _check_exits(self, now: float) -> None:
        for child in [child for child in self._alive if child.poll(now)]:
            if self._termination:
                self._left.add(child.pid)
                self._deadlines.search = time.monotonic()
            self.hooks.exited(child)
            if child.exit_status and not child.exit_status.succeeded and child.pid not in self.signalled:
                self._note_failure()

    def _note_failure(self) -> None:
        if self._deadlines.settle is None and not self._is_failing:
            self._deadlines.settle = time.monotonic() + SETTLE_S

    def _handle_signals(self) -> None:
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
            f"{signal_name(signum)} received: sending SIGTERM, workers have {self.stop_budget:g} s to save and exit"
        )
        self._terminate_all()
        self._deadlines.kill = min(at + self.stop_budget, self._deadlines.kill or float("inf"))

    def _handle_other_hosts(self) -> None:
        if self._is_failing or not self._alive:
            return
        why = self.hooks.others_failed()
        if why is None:
            return
        self._deadlines.settle = None
        self._is_failing = True
        self._terminate_others(f"{why}: ending the workers on this host")

    def _handle_deadlines(self) -> None:
        if self._deadlines.settle is not None and (self._due(self._deadlines.settle) or not self._alive):
            self._deadlines.settle = None
            self._fail()
        if self._due(self._deadlines.search):
            self._search()
        if self._unfinished and self._due(self._deadlines.kill):
            self._kill("time limit reached")

    def _fail(self) -> None:
        self._is_failing = True
        self.hooks.failed()
        self._terminate_others("ending the other workers")

    def _terminate_others(self, why: str) -> None:
        if self._alive and self.stopped_by is None:
            self.console.say(f"{why}: SIGTERM now, SIGKILL in {FAILURE_GRACE_S:g} s")
            self._terminate_all()
            self._deadlines.kill = time.monotonic() + FAILURE_GRACE_S

    def _terminate_all(self) -> None:
        if self._termination is None and self._alive:
            self._termination = Termination([child.pid for child in self.children])
            self.signalled.update(child.pid for child in self._alive)
            self._search()

    def _search(self) -> None:
        if self._termination is None:
            return
        self._left = self._termination.proceed()
        now = time.monotonic()
        self._deadlines.search = now + _SEARCH_S if self._termination.is_waiting else None
        shells = self._termination.shells
        if self._deadlines.kill is not None and all(
            child.exit_status and child.exit_status.succeeded and child.pid not in shells for child in self._unfinished
        ):
            self._deadlines.kill = min(self._deadlines.kill, now + _HELPERS_GRACE_S)

    def _kill(self, reason: str) -> None:
        self._deadlines.kill = None
        count = len(self._unfinished)
        self.console.say(f"{reason}: sending SIGKILL to {count} process(es) and their child processes")
        if self._termination is not None:
            self._termination.kill()
        for child in self.children:
            child.signal_group(signal.SIGKILL)
        self.signalled.update(child.pid for child in self._alive)
        self._deadlines.give_up = time.monotonic() + _GIVE_UP_S

    @staticmethod
    def _due(at: float | None) -> bool:
        return at is not None and time.monotonic() >= at
