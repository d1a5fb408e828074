"""Watches the progress of this host's ranks, and reports when they hang.

    a rank makes no progress for its limit       the stacks of all processes, the event `hang`, and the cause in the log
    another host hangs                            the same, if the first host asks and these ranks may have stopped too
    for twice its limit, if hangs end the job     the first host ends the job; the failure text names the cause
    a rank may compute after its last step        the job is ended up to `_LONGEST_DELAY_S` later
    it makes progress again, or exits with 0      a line and an event say so; also if the script reports its last step

The supervisor's loop passes the lines and calls `turn`, which does not block: a thread reads the stacks. Each host
sends what its ranks do to the first host, which names the rank that all others wait for (`job_hang`).
"""

from __future__ import annotations

import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.rank_layout import Layout
from smdp_entrypoint.contract.settings import HangSettings
from smdp_entrypoint.control.peers import Peers
from smdp_entrypoint.control.reports import Report
from smdp_entrypoint.hangs.cause import RankState, failure_text, state_messages, summary
from smdp_entrypoint.hangs.job_hang import JobHang, Wish
from smdp_entrypoint.hangs.progress import EXCHANGE, IN_STEP, INPUT, OTHER, RankProgress
from smdp_entrypoint.hangs.stacks import VARIABLE, ProcessStack, Stacks
from smdp_entrypoint.hangs.work import Work
from smdp_entrypoint.processes.console import Console

_MOST_LINES = 80  # of one process's stack in the log
_FRAMES = 8  # of the cause, in the failure text
_LAST_S = 4.0
# A rank that exports its model after the last step looks like one that waits for its GPU in a step: both use the
# processor and are in no phase. The delay is what the wait for a GPU may cost.
_LONGEST_DELAY_S = 300.0


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
        self._answered: set[int] | None = None  # the ranks of the answer, if this host reports because it was asked
        self._ends_answer = False
        self._is_shown = False  # the log has the report
        self._is_over = False  # the script has reported its last step, or the job ends
        self._work = Work()
        self._wish = Wish()
        self._job: JobHang | None = None
        if layout.current_host == layout.hosts[0]:
            self._job = JobHang(layout, console, peers, settings.after, self._answer, self._end_answer)

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
        if self._job is not None:
            self._job.turn(now)
        if self._ends_answer and not self._is_reporting:
            self._ends_answer = False
            if self._answered is not None:
                self._end_report("the ranks of all hosts make progress again", now)
        hanging = [] if self._is_over else self._hanging(now, 1)
        if self._reported_at is not None and not hanging:
            # Ranks that have only been killed, as when the job is stopped, have hung until their end.
            progressed = self._is_over or any((one.last or 0.0) > self._reported_at for one in self._ranks.values())
            if progressed and not self._is_reporting:  # else the report would follow its end
                self._resume(now)
        elif hanging and (self._reported_at is None or self._answered is not None):
            self._report_hang(hanging, now)
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
        why = f"the ranks of this host {'make progress again' if self._running() else 'have exited successfully'}"
        if self._is_over:
            why = "the script has reported its last step"
        self._end_report(why, now)
        self._send({"hang": "over"}, now)

    def _end_report(self, why: str, now: float) -> None:
        lasted = now - (self._reported_at or now)
        self._reported_at, self._answered, self._wish = None, None, Wish()
        if self._is_shown:
            self._console.say(f"hang: {why}, {lasted:.0f} s after the report")
            self._console.event("hang", what="over", seconds=round(lasted, 1))
        self._is_shown = False

    # --- What is reported ---

    def _report_hang(self, hanging: Sequence[RankProgress], now: float) -> None:
        if self._is_reporting:
            return
        if self._answered is not None and self._answered.issuperset(one.rank for one in hanging):
            self._answered = None  # the answer has all that the report would have
            self._send_states([], asked=False)
            return
        self._answered, self._reported_at = None, now
        self._start_thread(max(one.idle(now) for one in hanging), asked=False)

    def _answer(self, seconds: float, now: float) -> None:
        """Report what the ranks of this host do that may have stopped too, because another host has hung for so many
        seconds."""
        if self._reported_at is None and not self._is_over:
            self._answered, self._reported_at = set(), now
            self._start_thread(seconds, asked=True)

    def _end_answer(self) -> None:
        """The host that has hung makes progress again. A report that a thread writes now ends after it."""
        self._ends_answer = True

    @property
    def _is_reporting(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start_thread(self, seconds: float, *, asked: bool) -> None:
        self._thread = threading.Thread(target=self._guarded, args=[seconds, asked], name="hang", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the container's limit of threads
            self._thread = None
            self._report([], seconds, asked)

    def _guarded(self, seconds: float, asked: bool) -> None:
        try:
            stacks = self._stacks.read(self._running()) if self._stacks is not None else []
        except Exception as error:
            self._console.say(f"hang: the stacks cannot be read: {type(error).__name__}: {error}")
            stacks = []
        self._report(stacks, seconds, asked)

    def _report(self, stacks: list[ProcessStack], seconds: float, asked: bool) -> None:
        """`seconds`: for how long the ranks have hung. `asked`: those of another host."""
        now = time.monotonic()
        alive = [self._ranks[rank] for rank in sorted(self._running().values())]
        states = [self._state(one, stacks, now) for one in alive if one.may_have_stopped(now, seconds)]
        if states:
            follow = ". The stacks of this host's processes follow, the innermost frame first" if stacks else ""
            self._console.say(f"{summary(states)}{follow}")
            for stack in stacks:
                self._write(stack)
            known = [
                limit for limit in (one.limit(self._settings) for one in self._ranks.values()) if limit is not None
            ]
            fields = [state.event_fields() for state in states]
            self._console.event("hang", what="reported", limit=round(min(known, default=0.0), 1), ranks=fields)
            self._is_shown = True
        if asked:
            self._answered = {state.rank for state in states}
        self._send_states(states, asked=asked)

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

    # --- Between the hosts ---

    def _send(self, fields: dict[str, Any], now: float) -> None:
        """Send the first host what this host says."""
        if self._job is not None:
            self._take(self._job, self._layout.current_host, fields, now)
        else:
            self._peers.send(self._layout.hosts[0], {"for": "hang", **fields})

    def _send_states(self, states: Sequence[RankState], *, asked: bool) -> None:
        if self._job is not None:
            self._job.note(self._layout.current_host, states, asked=asked)
            return
        # Without states, the first host learns that this host has nothing to report.
        for message in state_messages(states) or [{"hang": "reported", "states": [], "more": False}]:
            self._peers.send(self._layout.hosts[0], {"for": "hang", **message, "asked": asked})

    def _read_messages(self, now: float) -> None:
        for host, fields in self._peers.hang_messages():
            kind = fields.get("hang")
            if host not in self._layout.hosts:  # it trains another model
                continue
            if kind == "last step":
                self._is_over = True
            elif self._job is not None:
                self._take(self._job, host, fields, now)
            elif kind == "report":
                self._answer(_seconds(fields), now)
            elif kind == "over":
                self._end_answer()

    @staticmethod
    def _take(job: JobHang, host: str, fields: Mapping[str, Any], now: float) -> None:
        """On the first host: what a host says."""
        kind = fields.get("hang")
        if kind == "over":
            job.over(host, now)
        elif kind == "end":
            job.wish(host, Wish.parse(fields), now)
        elif kind == "reported" and isinstance(fields.get("states"), list):
            try:
                states = [RankState.parse(one) for one in fields["states"]]
            except (ValueError, TypeError):
                return
            job.note(host, states, asked=bool(fields.get("asked")))
            if states and not fields.get("more"):  # the host's other states follow
                job.say_all()

    def _handle_end(self, hanging: list[RankProgress], now: float) -> None:
        at_once = any(one.phase in IN_STEP for one in hanging) or bool(self._hanging(now, 2, _LONGEST_DELAY_S))
        end = self._reported_at is not None and bool(self._hanging(now, 2))
        wish = Wish(end, self._computing(hanging, now), at_once)
        if wish != self._wish:
            self._wish = wish
            self._send({"hang": "end", **asdict(wish)}, now)
        states = self._job.states_at_end(now) if self._job is not None else []
        if states:
            self._end_job(states)

    def _computing(self, hanging: list[RankProgress], now: float) -> tuple[int, ...]:
        """The ranks that use the processor outside all phases, as an export or a test after the last step does."""
        pids = {rank: pid for pid, rank in self._running().items()}
        outside = [one.rank for one in hanging if one.phase == OTHER and one.rank in pids]
        self._work.watch([pids[rank] for rank in outside], now)
        return tuple(rank for rank in outside if self._work.is_busy(pids[rank]))

    def _end_job(self, states: list[RankState]) -> None:
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


def _seconds(fields: Mapping[str, Any]) -> float:
    seconds = fields.get("seconds")
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0


def _stacks(root: Path, console: Console) -> Stacks | None:
    try:
        return Stacks(root)
    except OSError as error:
        console.say(f"a hang will be reported without stacks: no folder for them can be created: {error}")
        return None
