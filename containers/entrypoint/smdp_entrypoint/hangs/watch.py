"""Watches the progress of this host's ranks, and reports when they hang.

    a rank makes no progress for its limit       the stacks of all processes, the event `hang`, and the cause in the log
    for twice its limit, if hangs end the job     the first host ends the job; the failure text names the cause
    a rank may compute after its last step        the job is ended up to `_LONGEST_DELAY_S` later
    it makes progress again, or exits with 0      a line and an event say so; also if the script reports its last step

The supervisor's loop passes the lines and calls `turn`, which does not block: a thread reads the stacks. Each host
sends what its ranks do to the first host, which names the rank that all others wait for, in the log and in the event
`hang_cause`. The first host asks the hosts that report nothing: the rank that all wait for may have stopped before its
usual step was known.
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Callable, Mapping

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.rank_layout import Layout
from smdp_entrypoint.contract.settings import HangSettings
from smdp_entrypoint.control.peers import Peers
from smdp_entrypoint.control.reports import Report
from smdp_entrypoint.hangs.cause import RankState, causes, failure_text, state_messages, summary
from smdp_entrypoint.hangs.progress import EXCHANGE, IN_STEP, INPUT, OTHER, RankProgress
from smdp_entrypoint.hangs.stacks import VARIABLE, ProcessStack, Stacks
from smdp_entrypoint.hangs.work import Work
from smdp_entrypoint.processes.console import Console

# The other hosts see the same hang within the window of their ranks' measurements.
_SETTLE_S = 2.0
_ANSWER_S = 10.0  # a host that is asked answers within this time, most of which the stacks need
_MOST_LINES = 80  # of one process's stack in the log
_FRAMES = 8  # of the cause, in the failure text
_LAST_S = 4.0
# A rank that exports its model after the last step looks like one that waits for its GPU in a step: both use the
# processor and are in no phase. The delay is what the wait for a GPU may cost.
_LONGEST_DELAY_S = 300.0


@dataclass(frozen=True)
class _Wish:
    """What a host says about the end of the job. `end`: one of its ranks hangs for long enough. `computing`: its ranks
    that use the processor outside all phases. `at_once`: such ranks do not delay the end, because a rank of this host
    hangs within a step, or hangs for longer than the delay."""

    end: bool = False
    computing: tuple[int, ...] = ()
    at_once: bool = False

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> _Wish:
        ranks = fields.get("computing")
        computing = tuple(one for one in ranks if isinstance(one, int)) if isinstance(ranks, list) else ()
        return cls(bool(fields.get("end")), computing, bool(fields.get("at_once")))


class HangWatch:
    """`running` returns the ranks of the workers that run, by process ID. `finish` ends it."""

    def __init__(
        self,
        settings: HangSettings,
        layout: Layout,
        tree: MlTree,
        console: Console,
        peers: Peers,
        running: Callable[[], Mapping[int, int]],
    ) -> None:
        self._settings, self._layout, self._code = settings, layout, tree.code
        self._console, self._peers, self._running = console, peers, running
        self._ranks = {rank: RankProgress(rank) for rank in layout.ranks}
        self._is_on = settings.action != "ignore"
        self._stacks = _stacks(tree.root, console) if self._is_on else None
        self._reported_at: float | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._states: dict[int, RankState] = {}  # on the first host: of the whole job
        self._named: list[int] | None = None  # on the first host: the ranks of the last event `hang_cause`
        self._ask_at: float | None = None  # on the first host: when hosts that have reported nothing are asked
        self._is_asked = False
        self._decide_at: float | None = None
        self._is_over = False  # the script has reported its last step, or the job ends
        self._work = Work()
        self._wish = _Wish()
        self._wishes: dict[str, _Wish] = {}  # on the first host: of all hosts
        self._delayed_by: list[int] = []  # on the first host: ranks

    @property
    def variables(self) -> dict[str, str]:
        """For the workers."""
        return {VARIABLE: self._stacks.variable} if self._stacks is not None else {}

    def line(self, rank: int, text: str, *, by_engine: bool) -> None:
        """Take a line that the script or the engine of a rank has written."""
        if self._is_on and not self._is_over:
            progress = self._ranks[rank]
            progress.read(text, time.monotonic(), by_engine=by_engine)
            if progress.is_done:
                self._end_watch()

    def exited(self, rank: int) -> None:
        """A worker has exited successfully, and not because the supervisor has sent it a signal: it does not hang."""
        self._ranks[rank].last = time.monotonic()

    def turn(self) -> None:
        """Called by the supervisor's loop, at least each second."""
        if not self._is_on:
            return
        now = time.monotonic()
        self._read_messages(now)
        if self._peers.ending is not None:
            return
        self._name_causes()
        self._ask_hosts(now)
        hanging = [] if self._is_over else self._hanging(now, 1)
        if self._reported_at is not None and not hanging:
            # Ranks that have only been killed, as when the job is stopped, have hung until their end.
            progressed = self._is_over or any((one.last or 0.0) > self._reported_at for one in self._ranks.values())
            is_reporting = self._thread is not None and self._thread.is_alive()
            if progressed and not is_reporting:  # else the report would follow its end
                self._resume(now)
        elif hanging:
            self._begin_report(now)
        if self._settings.action == "end" and not self._is_over:
            self._handle_end(hanging, now)

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join(_LAST_S)
        if self._stacks is not None:
            self._stacks.close()

    def _hanging(self, now: float, times: float, more: float = 0.0) -> list[RankProgress]:
        """The ranks whose worker runs and that have made no progress for so many times their limit and `more`
        seconds."""
        alive = set(self._running().values())
        hanging = []
        for progress in self._ranks.values():
            limit = progress.limit(self._settings)
            if limit is not None and progress.rank in alive and progress.idle(now) >= times * limit + more:
                hanging.append(progress)
        return hanging

    def _resume(self, now: float) -> None:
        lasted = now - (self._reported_at or now)
        self._reported_at, self._wish = None, _Wish()
        self._take_wish(self._layout.current_host, self._wish, now)
        with self._lock:
            own = set(self._ranks)
            self._states = {rank: state for rank, state in self._states.items() if rank not in own}
        self._send({"hang": "over"})
        why = f"the ranks of this host {'make progress again' if self._running() else 'have exited successfully'}"
        if self._is_over:
            why = "the script has reported its last step"
        self._console.say(f"hang: {why}, {lasted:.0f} s after the report")
        self._console.event("hang", what="over", seconds=round(lasted, 1))

    # --- What is reported ---

    def _begin_report(self, now: float) -> None:
        """Report what all ranks of this host do, unless this hang has been reported."""
        if self._reported_at is None:
            self._reported_at = now
            self._start_thread(now)

    def _start_thread(self, now: float) -> None:
        self._thread = threading.Thread(target=self._guarded, args=[now], name="hang", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the container's limit of threads
            self._thread = None
            self._report([], now)

    def _guarded(self, now: float) -> None:
        try:
            stacks = self._stacks.read(self._running()) if self._stacks is not None else []
        except Exception as error:
            self._console.say(f"hang: the stacks cannot be read: {type(error).__name__}: {error}")
            stacks = []
        self._report(stacks, now)

    def _report(self, stacks: list[ProcessStack], now: float) -> None:
        alive = sorted(self._running().values())
        states = [self._state(self._ranks[rank], stacks, now) for rank in alive]
        if not states:
            return
        follow = ". The stacks of this host's processes follow, the innermost frame first" if stacks else ""
        self._console.say(f"{summary(states)}{follow}")
        for stack in stacks:
            self._write(stack)
        limits = [limit for limit in (one.limit(self._settings) for one in self._ranks.values()) if limit is not None]
        fields = [state.event_fields() for state in states]
        self._console.event("hang", what="reported", limit=round(min(limits, default=0.0), 1), ranks=fields)
        self._note(states)
        for message in state_messages(states):
            self._send(message)

    def _write(self, stack: ProcessStack) -> None:
        kind = f"rank {stack.rank}" if stack.is_worker else f"a child process of rank {stack.rank}"
        if stack.missing:
            self._console.say(f"{kind} (process {stack.pid}): no stack: {stack.missing}")
            return
        self._console.say(f"{kind} (process {stack.pid}):")
        for line in stack.lines[:_MOST_LINES]:
            self._console.say(f"  {line}")

    def _state(self, progress: RankProgress, stacks: list[ProcessStack], now: float) -> RankState:
        own = [stack for stack in stacks if stack.rank == progress.rank]
        main = next((stack for stack in own if stack.is_worker), None)
        exchange = main.exchange if main is not None else ""
        phase = progress.phase or (EXCHANGE if exchange else "")
        busy = [stack for stack in own if not stack.is_worker and stack.main_thread and not stack.waits_for_task]
        loader = busy[0] if busy and phase in (INPUT, "") else None
        shown = loader or main
        frames = shown.main_thread[:_FRAMES] if shown is not None else []
        return RankState(
            progress.rank,
            self._layout.current_host,
            progress.idle(now),
            progress.usual or 0.0,
            phase,
            progress.waits_for,
            progress.operation or (exchange if phase == EXCHANGE else ""),
            str(main.place(self._code) or "") if main is not None else "",
            str(loader.place(self._code) or "") if loader is not None else "",
            "\n".join(frame.in_full for frame in frames),
        )

    # --- The first host's part ---

    @property
    def _is_first(self) -> bool:
        return self._layout.current_host == self._layout.hosts[0]

    def _send(self, fields: dict[str, Any]) -> None:
        if self._is_first:
            return
        self._peers.send(self._layout.hosts[0], {"for": "hang", **fields})

    def _note(self, states: list[RankState]) -> None:
        if self._is_first:
            with self._lock:
                self._states.update((state.rank, state) for state in states)

    def _name_causes(self) -> None:
        """Only the first host knows the states of all hosts. Other views of the hang name the ranks of its event."""
        with self._lock:
            states = list(self._states.values())
        named = sorted(state.rank for state in causes(states)) if states else None
        if named is not None and named != self._named:
            self._console.event("hang_cause", ranks=named)
        self._named = named

    def _ask_hosts(self, now: float) -> None:
        """Once in a hang, the hosts that have not reported it are asked for the states of their ranks."""
        with self._lock:
            known = {state.host for state in self._states.values()}
        if not known:
            self._ask_at, self._is_asked = None, False
        elif self._ask_at is None:
            self._ask_at = now + _SETTLE_S
        elif now >= self._ask_at and not self._is_asked:
            self._is_asked = True
            if self._layout.current_host not in known:
                self._begin_report(now)
            for host in self._layout.hosts:
                if host not in known and host != self._layout.current_host:
                    self._peers.send(host, {"for": "hang", "hang": "report"})

    def _waits_for_answers(self, now: float) -> bool:
        with self._lock:
            known = {state.host for state in self._states.values()}
        return len(known) < len(self._layout.hosts) and (self._ask_at is None or now < self._ask_at + _ANSWER_S)

    def _read_messages(self, now: float) -> None:
        for host, fields in self._peers.hang_messages():
            kind = fields.get("hang")
            if kind == "last step":
                self._is_over = True
            elif kind == "report" and not self._is_over:
                self._begin_report(now)
            elif kind == "over":
                self._take_wish(host, _Wish(), now)
                with self._lock:
                    self._states = {rank: one for rank, one in self._states.items() if one.host != host}
            elif kind == "reported" and isinstance(fields.get("states"), list):
                self._take(fields["states"], more=bool(fields.get("more")))
            elif kind == "end":
                self._take_wish(host, _Wish.parse(fields), now)

    def _take(self, states: list[Any], *, more: bool) -> None:
        try:
            parsed = [RankState.parse(one) for one in states]
        except (ValueError, TypeError):
            return
        self._note(parsed)
        if more:  # the host's other states follow
            return
        with self._lock:
            together = list(self._states.values())
        if len({state.host for state in together}) > 1:
            self._console.say(f"{summary(together)} (of the hosts {', '.join(sorted({one.host for one in together}))})")

    def _handle_end(self, hanging: list[RankProgress], now: float) -> None:
        at_once = any(one.phase in IN_STEP for one in hanging) or bool(self._hanging(now, 2, _LONGEST_DELAY_S))
        end = self._reported_at is not None and bool(self._hanging(now, 2))
        wish = _Wish(end, self._computing(hanging, now), at_once)
        if wish != self._wish:
            self._wish = wish
            self._send({"hang": "end", **asdict(wish)})
            self._take_wish(self._layout.current_host, wish, now)
        if self._decide_at is None or now < self._decide_at or self._waits_for_answers(now):
            return
        with self._lock:
            states = sorted(self._states.values(), key=lambda state: state.rank)
        if states:
            self._end_job(states, now)

    def _computing(self, hanging: list[RankProgress], now: float) -> tuple[int, ...]:
        """The ranks that use the processor outside all phases, as an export or a test after the last step does."""
        pids = {rank: pid for pid, rank in self._running().items()}
        outside = [one.rank for one in hanging if one.phase == OTHER and one.rank in pids]
        self._work.watch([pids[rank] for rank in outside], now)
        return tuple(rank for rank in outside if self._work.is_busy(pids[rank]))

    def _take_wish(self, host: str, wish: _Wish, now: float) -> None:
        if not self._is_first:
            return
        before, self._wishes[host] = self._wishes.get(host, _Wish()), wish
        wishes = self._wishes.values()
        at_once = any(one.at_once for one in wishes)
        ends = any(one.end for one in wishes)
        self._delay_by([] if at_once or not ends else sorted(rank for one in wishes for rank in one.computing))
        if not ends or self._delayed_by:
            self._decide_at = None
        elif (before.computing and not wish.computing and not at_once) or (before.end and not wish.end):
            # The ranks that have waited for this host's ranks need time to make progress too, or to exit.
            self._decide_at = now + self._settings.after
        else:
            self._decide_at = self._decide_at or now + _SETTLE_S

    def _delay_by(self, ranks: list[int]) -> None:
        if ranks and not self._delayed_by:
            text = ", ".join(map(str, ranks))
            self._console.say(f"hang: not ending the job yet, because a rank computes outside its steps: {text}")
        self._delayed_by = ranks

    def _end_job(self, states: list[RankState], now: float) -> None:
        self._is_over = True
        text = failure_text(states)
        self._console.say(f"ending the job: {summary(states)}")
        oldest = max(states, key=lambda state: state.idle)
        # Its failure began with its last progress, so no error of a worker that is ended now comes before it.
        self._peers.report(Report(self._layout.current_host, time.time() - oldest.idle, 1, 1, text))

    def _end_watch(self) -> None:
        """The script has reported its last step: what it does now, such as a test, has no steps."""
        self._is_over = True
        for host in self._layout.hosts:
            if host != self._layout.current_host:
                self._peers.send(host, {"for": "hang", "hang": "last step"})


def _stacks(root: Path, console: Console) -> Stacks | None:
    try:
        return Stacks(root)
    except OSError as error:
        console.say(f"a hang will be reported without stacks: no folder for them can be created: {error}")
        return None
