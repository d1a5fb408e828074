"""Follows a job on the terminal until it ends or the person leaves it."""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from types import FrameType
from typing import Any, Protocol

from smdp_launch.cli.render.events import EventView
from smdp_launch.cli.render.follow import FollowView, Shape
from smdp_launch.cli.render.launch import Followed
from smdp_launch.cli.render.upload import UploadView
from smdp_launch.errors import SmdpError
from smdp_launch.jobs.follow import Ended, Follower, Seen
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.logs.tracebacks import Tracebacks
from smdp_launch.jobs.records.history import remember_end
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import Trouble, trouble
from smdp_launch.jobs.service.retry_policy import Patience
from smdp_launch.jobs.submit import create, send_source, stop, submit
from smdp_launch.planning.plan import Plan
from smdp_launch.signal_flag import SignalFlag

View = FollowView | EventView


class Watch(Protocol):
    """Sees all that is shown of a job."""

    def see(self, seen: Seen) -> None: ...

    def has_waited(self) -> bool:
        """Whether the job is to be stopped now."""


class Answer(Enum):
    STOP = "stop"
    DETACH = "detach"
    GO_ON = "go on"


def submit_shown(clients: Clients, plan: Plan) -> None:
    """Create the job, with a bar for a source archive that takes its time."""
    with UploadView() as upload:
        submit(clients, plan, upload.show)


def submit_and_follow(
    clients: Clients, plan: Plan, events: EventView | None = None, watch: Watch | None = None
) -> Followed | None:
    """Create the job and show it until it ends, to people or as ``events``. None if the person left it running.

    While the source travels an interrupt breaks in, and there is no job. From right before the job is created one is a
    question about the job: none can come between the two.

    Raises:
        KeyboardInterrupt: no job was created.
        Interrupted: the service did not answer, so that there may be one.
    """
    with terminated_like_interrupted(), UploadView() as upload:
        send_source(clients, plan, upload.show)
    with interrupts_held(clients):
        create(clients, plan.request)
        following = Following(clients, plan.job, Shape.of_plan(plan), Answer.STOP, events=events, watch=watch)
        return following.run() if plan.local is None else follow_here(following)


def follow_here(following: Following) -> Followed | None:
    """As its ``run``, of a job of this machine, which would be forgotten where nobody reads any more: it is stopped."""
    try:
        return following.run()
    except BrokenPipeError:
        stop(following.clients, following.job)
        raise


@dataclass
class Following:
    """Args:
    shape: None for what the service says of the job.
    unasked: what an interrupt means where nobody can be asked, or is asked twice.
    timeout: seconds to follow at most.
    quiet: without the hosts' lines.
    events: shows it in place of a view for people.
    watch: sees it too.
    """

    clients: Clients
    job: str
    shape: Shape | None
    unasked: Answer
    timeout: float | None = None
    quiet: bool = False
    events: EventView | None = None
    watch: Watch | None = None
    _results: dict[str, Any] = field(default_factory=dict)
    _tracebacks: Tracebacks = field(default_factory=Tracebacks)
    _stopping: bool = False
    _owes_stop: bool = False  # the service has not taken it yet

    def run(self) -> Followed | None:
        """Show the job until it ends. None if the person left it running.

        Raises:
            ServiceProblem: the service refused, or does not know the job.
            WaitTimedOut: it has not ended by then.
        """
        follower = Follower(self.clients, self.job, self.timeout)
        with self.events or FollowView(self.shape, quiet=self.quiet) as view:
            while True:
                for seen in follower.look():
                    if self.shape is None and follower.description is not None:
                        self.shape = view.shape = Shape.of_description(follower.description)
                    self._show(view, seen)
                    if isinstance(seen, Ended):
                        return self._end(view, seen.outcome)
                if self.clients.interrupted.wait(follower.pause) and self._leaves(view):
                    return None
                if self.watch is not None and self.watch.has_waited():
                    self._stopping = self._owes_stop = True
                if self._owes_stop:
                    self._stop(view)

    def _end(self, view: View, outcome: Outcome) -> Followed:
        remember_end(self.job, outcome, datetime.now(timezone.utc))
        traceback = self._tracebacks.first
        if isinstance(view, EventView):
            view.end(outcome, self._results, traceback)
        return Followed(outcome, self._results, traceback)

    def _show(self, view: View, seen: Seen) -> None:
        view.show(seen)
        self._tracebacks.see(seen)
        if self.watch is not None:
            self.watch.see(seen)
        if isinstance(seen, JobEvent) and seen.name == "result":
            self._results = dict(seen.fields)

    def _leaves(self, view: View) -> bool:
        """Whether an interrupt ends the following; asks, at the first one."""
        interrupted = self.clients.interrupted
        interrupted.clear()
        answer = Answer.DETACH if self._stopping else _ask(view, self.job, interrupted, self.unasked)
        if answer is Answer.DETACH:
            view.left(self.job, self._stopping)
            return True
        if answer is Answer.STOP:
            self._stopping = self._owes_stop = True
        return False

    def _stop(self, view: View) -> None:
        """One try: what is in the way may pass until the next look, and a refusal ends the stopping alone."""
        try:
            stop(replace(self.clients, patience=Patience(total=0.0, credentials=1)), self.job)
        except SmdpError as error:
            self._owes_stop = self._stopping = trouble(error.__cause__) is not Trouble.FINAL
            view.say(f"{error}; {'trying again' if self._owes_stop else 'it goes on'}")
        else:
            self._owes_stop = False
            view.say("stopping: the script has 120 s to save what it needs; Ctrl-C again leaves it to that")


@contextmanager
def interrupts_held(clients: Clients) -> Iterator[None]:
    """SIGINT and SIGTERM set ``clients.interrupted`` instead of breaking in: a job that is created is known, and no
    line is lost between reading and showing it."""
    with _handled(lambda *_: clients.interrupted.set(), signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM breaks in as SIGINT does, so that what was begun is taken away again."""
    with _handled(signal.default_int_handler, signal.SIGTERM):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object], *signals: signal.Signals) -> Iterator[None]:
    previous = {one: signal.signal(one, handler) for one in signals}
    try:
        yield
    finally:
        for one, before in previous.items():
            signal.signal(one, before)


def _ask(view: View, job: str, interrupted: SignalFlag, unasked: Answer) -> Answer:
    """Asks once. ``unasked`` is what a second Ctrl-C means, and a Ctrl-C where nobody can be asked."""
    if not view.asks or sys.stdin is None or not sys.stdin.isatty():
        return unasked
    choices = {"s": Answer.STOP, "d": Answer.DETACH, "c": Answer.GO_ON}
    with view.paused():
        sys.stdout.write(f"\nStop {job}? [s]top it, [d]etach and let it run, [c]ontinue: ")
        sys.stdout.flush()
        # Not input(): a Ctrl-C between its prompt and its reading would be noticed with the next key only.
        while not interrupted.is_set():
            if select.select([sys.stdin], [], [], 0.1)[0]:
                answer = sys.stdin.readline()
                return choices.get(answer.strip().lower()[:1], Answer.GO_ON) if answer else unasked
    interrupted.clear()
    return unasked
