"""Follows a job on the terminal until it ends or the person leaves it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from smdp_launch.cli.render.follow import FollowView
from smdp_launch.cli.render.next import say_next
from smdp_launch.cli.render.upload import UploadView
from smdp_launch.jobs.clients import Clients
from smdp_launch.jobs.follow import Ended, Follower, JobEvent
from smdp_launch.jobs.outcome import Outcome
from smdp_launch.jobs.submit import stop, submit
from smdp_launch.planning.plan import Plan


@dataclass
class Followed:
    """How the job ended, and the last ``result`` event of its script."""

    outcome: Outcome
    results: dict[str, Any] = field(default_factory=dict)


class _Answer(Enum):
    STOP = "stop"
    DETACH = "detach"
    GO_ON = "go on"


def submit_and_follow(clients: Clients, plan: Plan) -> Followed | None:
    """Create the job and show it until it ends. None if the person left it running.

    From before the job exists an interrupt is a question about the job: none can come between the two.
    """
    with _interrupts() as interrupted:
        with UploadView() as upload:
            submit(clients, plan, upload.show)
        try:
            return _follow(clients, plan, interrupted)
        except BrokenPipeError:
            # Nobody reads any more. On AWS the job goes on, as its name was told; here nobody could find it again.
            if plan.local is not None:
                stop(clients, plan.job)
            raise


def _follow(clients: Clients, plan: Plan, interrupted: threading.Event) -> Followed | None:
    follower = Follower(clients, plan.job)
    results: dict[str, Any] = {}
    stopping = False
    with FollowView(plan) as view:
        while True:
            for seen in follower.look():
                view.show(seen)
                if isinstance(seen, JobEvent) and seen.name == "result":
                    results = dict(seen.fields)
                if isinstance(seen, Ended):
                    return Followed(seen.outcome, results)
            if not interrupted.wait(clients.poll):
                continue
            interrupted.clear()
            if stopping:
                view.say(f"left {plan.job}, which is being stopped")
                if plan.local is None:
                    say_next(_looking_at(plan))
                return None
            answer = _ask(view, plan)
            if answer is _Answer.DETACH:
                view.say(f"left {plan.job}, which goes on")
                say_next(_looking_at(plan))
                return None
            if answer is _Answer.STOP:
                stopping = True
                stop(clients, plan.job)
                view.say("stopping: the script has 120 s to save what it needs; Ctrl-C again leaves it to that")


def _looking_at(plan: Plan) -> str:
    return f"aws sagemaker describe-training-job --region {plan.spec.region} --training-job-name {plan.job}"


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """SIGINT and SIGTERM set an event instead of breaking in: no line is lost between reading and showing it."""
    arrived = threading.Event()
    previous = {one: signal.signal(one, lambda *_: arrived.set()) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield arrived
    finally:
        for one, handler in previous.items():
            signal.signal(one, handler)


def _ask(view: FollowView, plan: Plan) -> _Answer:
    """Asks once. A second Ctrl-C means stop, and so does a Ctrl-C where nobody can be asked.

    A job of this machine cannot be left alone: nothing could find it again.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        return _Answer.STOP
    choices = {"s": _Answer.STOP, "c": _Answer.GO_ON}
    question = "[s]top it, [c]ontinue"
    if plan.local is None:
        choices["d"] = _Answer.DETACH
        question = "[s]top it, [d]etach and let it run, [c]ontinue"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with view.paused():
            answer = input(f"\nStop {plan.job}? {question}: ")
        return choices.get(answer.strip().lower()[:1], _Answer.GO_ON)
    except (KeyboardInterrupt, EOFError):
        return _Answer.STOP
    finally:
        signal.signal(signal.SIGINT, before)
