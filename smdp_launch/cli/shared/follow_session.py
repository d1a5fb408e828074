"""Follows a job on the terminal until it ends or the user detaches from it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from smdp_launch.catalog.prices import PriceTable
from smdp_launch.cli.render.job.events import EventView
from smdp_launch.cli.render.job.follow import FollowView, JobLayout
from smdp_launch.cli.render.job.launch import FollowResult
from smdp_launch.cli.render.job.progress import ShownRun
from smdp_launch.cli.render.job.upload import UploadView
from smdp_launch.cli.render.next_step import command_for_job, print_note
from smdp_launch.cli.shared.keyboard import Keyboard
from smdp_launch.errors import Interrupted, SmdpError
from smdp_launch.jobs.follow import Ended, Follower, FollowEvent
from smdp_launch.jobs.input_record import record_input
from smdp_launch.jobs.job import UNKNOWN_REGION
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.logs.tracebacks import Tracebacks
from smdp_launch.jobs.notifications.notifier import Notifier, notifier_of
from smdp_launch.jobs.records.history import LOCAL, record_end
from smdp_launch.jobs.run import Run, add_event
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind
from smdp_launch.jobs.service.retry_policy import SINGLE_TRY
from smdp_launch.jobs.status.cost import price_of, usd
from smdp_launch.jobs.status.description import Description
from smdp_launch.jobs.submit import create, send_source, stop
from smdp_launch.planning.plan import Plan
from smdp_launch.signals.interrupts import raise_keyboard_interrupt

View = FollowView | EventView


class Watch(Protocol):
    """Observes every follow event of a job."""

    def observe(self, seen: FollowEvent) -> None: ...

    def should_stop(self) -> bool:
        """Whether to stop the job now."""


class Answer(Enum):
    """What an interrupt (Ctrl-C) does to the job."""

    STOP = "stop"
    DETACH = "detach"
    CONTINUE = "continue"


def submit_detached(clients: Clients, plan: Plan) -> None:
    """Create the job, with a progress bar for a large source archive. An interrupt during the upload cancels the
    launch.

    Raises:
        KeyboardInterrupt: no job was created.
        Interrupted: the user interrupted the creation. The message says whether the job exists.
    """
    with sigterm_as_sigint(), UploadView() as upload:
        send_source(clients, plan, upload.show)
    with interrupts_deferred(clients):
        create(clients, plan.request)
        require_no_interrupt(clients, plan.job)


def require_no_interrupt(clients: Clients, job: str) -> None:
    """Call this when a job was created that is not followed.

    Raises:
        Interrupted: the user interrupted the creation, perhaps to cancel it.
    """
    if clients.interrupted.is_set():
        raise Interrupted(f"{job} was created and runs; `{command_for_job('stop', job)}` stops it")


def submit_and_follow(
    clients: Clients,
    plan: Plan,
    events: EventView | None = None,
    watch: Watch | None = None,
    report: Path | None = None,
    *,
    quiet: bool = False,
) -> FollowResult | None:
    """Create the job and show it until it ends, to a person or as ``events``. None if the user detached.

    An interrupt during the upload cancels the launch. From just before the job's creation, an interrupt is a question
    about the job, so that no job exists without the user's knowledge.

    Raises:
        KeyboardInterrupt: no job was created.
        Interrupted: the service did not answer, so the job may exist.
    """
    with sigterm_as_sigint(), UploadView() as upload:
        send_source(clients, plan, upload.show)
    with interrupts_deferred(clients):
        create(clients, plan.request)
        options = RunOptions(LOCAL if plan.local is not None else plan.spec.region, report)
        layout = JobLayout.of_plan(plan)
        session = FollowSession(
            clients, plan.job, layout, Answer.STOP, quiet=quiet, events=events, watch=watch, options=options
        )
        return session.run() if plan.local is None else follow_local(session)


def follow_created(
    clients: Clients, plan: Plan, events: EventView | None = None, *, report: Path | None = None
) -> FollowResult | None:
    """Show a job that was created already, as `submit_and_follow` does."""
    with interrupts_deferred(clients):
        options = RunOptions(plan.spec.region, report)
        layout = JobLayout.of_plan(plan)
        return FollowSession(clients, plan.job, layout, Answer.STOP, events=events, options=options).run()


def follow_local(session: FollowSession) -> FollowResult | None:
    """Run the session of a local job, and stop the job if the reader of the output exits."""
    try:
        return session.run()
    except BrokenPipeError:
        stop(session.clients, session.job)
        raise


@dataclass(frozen=True)
class RunOptions:
    """Args:
    where: the AWS region that runs the job, or ``local``.
    report: the file for a report at the end, or when the user detaches.
    prices: a table of prices; None to use the price of the launch.
    """

    where: str = ""
    report: Path | None = None
    prices: PriceTable | None = None

    @property
    def region(self) -> str | None:
        return None if self.where in ("", LOCAL, UNKNOWN_REGION) else self.where


@dataclass
class FollowSession:
    """Args:
    layout: None to take it from the service's description of the job.
    default_answer: what an interrupt does if the user cannot be asked, or interrupts the question.
    timeout: seconds to follow at most.
    quiet: omit the hosts' logs.
    events: the view to use in place of one for people.
    watch: an observer of all events.
    options: what a report and the cost need.

    Attributes:
        had_ended: whether the job had ended before `run`.
    """

    clients: Clients
    job: str
    layout: JobLayout | None
    default_answer: Answer
    timeout: float | None = None
    quiet: bool = False
    events: EventView | None = None
    watch: Watch | None = None
    options: RunOptions = field(default_factory=RunOptions)
    had_ended: bool = field(default=False, init=False)
    _shown: ShownRun = field(default_factory=ShownRun)
    _results: dict[str, Any] = field(default_factory=dict)
    _tracebacks: Tracebacks = field(default_factory=Tracebacks)
    _keyboard: Keyboard = field(default_factory=Keyboard)
    _stopping: bool = False
    _stop_pending: bool = False  # the service has not accepted it yet

    def run(self) -> FollowResult | None:
        """Show the job until it ends. None if the user detached.

        Raises:
            ServiceProblem: the service refused, or does not know the job.
            WaitTimedOut: the job did not end in time.
        """
        follower = Follower(self.clients, self.job, self.timeout)
        result = None
        with notifier_of(self.job, print_note) as notifier:
            shown = FollowView(self.layout, quiet=self.quiet, run=self._shown, region=self.options.region)
            with self.events or shown as view:
                for event in follower.events(lambda pause: self._detaches_during(pause, view, notifier, follower)):
                    if follower.description is not self._shown.description and follower.description is not None:
                        self._describe(view, follower.description)
                    self._show(view, event)
                    notifier.observe(event)
                    if isinstance(event, Ended):
                        if not event.has_all_lines:
                            logs = command_for_job("logs", self.job, self.options.region)
                            view.note(f"the log may be incomplete, because the timeout came first: `{logs}` prints it")
                        result = self._end(view, event)
                        described = self._shown.description
                        cost = usd(described, self._shown.price) if described is not None else None
                        notifier.end(event.outcome, cost)
            self._write_report(follower.request, result)
        self.had_ended = follower.had_ended
        return result

    def _describe(self, view: View, described: Description) -> None:
        known = self._shown.description
        if known is None or known.instance_type != described.instance_type:  # one of several types has been selected
            self._shown.price = price_of(described, self.options.where, self.options.prices)
        self._shown.description = described
        if self.layout is None:
            self.layout = view.layout = JobLayout.of_description(described)

    def _write_report(self, request: Mapping[str, Any], result: FollowResult | None) -> None:
        """Write the report, if one is requested. An error is a note: the job's outcome decides about the exit code."""
        described = self._shown.description
        if self.options.report is None or described is None:
            return
        from smdp_launch.cli.render.job.report import write_report

        is_whole = result is None or result.has_all_lines
        run = Run(self.options.where, described, self._shown.metrics, self._shown.price, request, is_whole)
        try:
            write_report(run, self.options.report)
        except SmdpError as error:
            print_note(str(error))

    def _detaches_during(self, pause: float, view: View, notifier: Notifier, follower: Follower) -> bool:
        """Wait until the next poll. Return whether the user detaches."""
        notifier.tick(follower.read_at)
        if self.clients.interrupted.wait(pause) and self._detaches(view):
            return True
        if self.watch is not None and self.watch.should_stop():
            self._stopping = self._stop_pending = True
        if self._stop_pending:
            self._stop(view)
        return False

    def _end(self, view: View, ended: Ended) -> FollowResult:
        record_end(self.job, ended.outcome, datetime.now(timezone.utc))
        self._shown.metrics.ended = True
        if ended.has_all_lines:  # the start of a log shows another rate than all of it
            record_input(self.job, self._shown.metrics)
        traceback, is_whole = self._tracebacks.first, ended.has_all_lines
        result = FollowResult(ended.outcome, self._results, traceback, self._shown.metrics, is_whole)
        if isinstance(view, EventView):
            view.end(result)
        return result

    def _show(self, view: View, event: FollowEvent) -> None:
        if isinstance(event, JobEvent):
            add_event(self._shown.metrics, event)
        view.show(event)
        self._tracebacks.observe(event)
        if self.watch is not None:
            self.watch.observe(event)
        if isinstance(event, JobEvent) and event.name == "result":
            self._results = dict(event.fields)

    def _detaches(self, view: View) -> bool:
        """Handle an interrupt: ask the user at the first one. True if the session ends and the job continues."""
        interrupted = self.clients.interrupted
        interrupted.clear()
        answer = Answer.DETACH if self._stopping else self._ask(view)
        if answer is Answer.DETACH:
            view.detached(self.job, self._stopping)
            return True
        if answer is Answer.STOP:
            self._stopping = self._stop_pending = True
        return False

    def _ask(self, view: View) -> Answer:
        """Ask once. Return the default if there is no terminal, at the end of input, or after a second Ctrl-C."""
        if not view.is_interactive or sys.stdin is None or not sys.stdin.isatty():
            return self.default_answer
        choices = {"s": Answer.STOP, "d": Answer.DETACH, "c": Answer.CONTINUE}
        with view.paused():
            sys.stdout.write(f"\nStop {self.job}? [s]top it, [d]etach and let it run, [c]ontinue: ")
            sys.stdout.flush()
            answer = self._keyboard.line(self.clients.interrupted.is_set)
        if answer is None:
            self.clients.interrupted.clear()
        return choices.get(answer.strip().lower()[:1], Answer.CONTINUE) if answer else self.default_answer

    def _stop(self, view: View) -> None:
        """Request the stop once. A temporary error leaves it pending until the next poll; a refusal cancels it."""
        try:
            stop(replace(self.clients, retry_policy=SINGLE_TRY), self.job)
        except SmdpError as error:
            self._stop_pending = self._stopping = error_kind(error.__cause__) is not ErrorKind.FINAL
            view.note(f"{error}; {'retrying' if self._stop_pending else 'the job continues'}")
        else:
            self._stop_pending = False
            view.note("stopping: the script has 120 s to save its state; press Ctrl-C again to detach")


@contextmanager
def interrupts_deferred(clients: Clients) -> Iterator[None]:
    """Make SIGINT and SIGTERM set ``clients.interrupted`` instead of raising: a created job stays known, and no log
    line is lost between reading and showing it."""
    with _handled(lambda *_: clients.interrupted.set(), signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def sigterm_as_sigint() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt, so that cleanup runs."""
    with _handled(raise_keyboard_interrupt, signal.SIGTERM):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object], *signals: signal.Signals) -> Iterator[None]:
    previous = {one: signal.signal(one, handler) for one in signals}
    try:
        yield
    finally:
        for one, before in previous.items():
            signal.signal(one, before)
