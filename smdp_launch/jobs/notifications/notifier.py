"""Sends the notifications of a job while it is followed. Each is sent once, also if several commands follow the job."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from smdp_launch.errors import SmdpError
from smdp_launch.jobs.checkpoints.watch import CheckpointsStalled
from smdp_launch.jobs.follow import FollowEvent, StatusChanged
from smdp_launch.jobs.logs.messages import JobEvent
from smdp_launch.jobs.notifications.message import Message
from smdp_launch.jobs.notifications.receivers import NotSent, require_webhook, to_command, to_sns, to_webhook
from smdp_launch.jobs.notifications.stall import StallWatch
from smdp_launch.jobs.records.history import LOCAL, claim_notification, find_launch
from smdp_launch.jobs.records.lines import Launch, Notified
from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.units import duration

#: Seconds; trouble that is longer ago is not news, as when a command follows a job from its first event on.
_OLD = 900.0
#: Seconds to wait at the end for receivers that do not answer.
_CLOSE = 60.0

_KINDS: dict[str, Any] = {"Completed": "completed", "Failed": "failed"}


class Notifier:
    """A context: its end waits until everything is sent, or for a minute.

    Args:
        note: shows an error of a receiver. An error changes nothing of the job or of its exit code.
        clock: seconds since 1970.
    """

    def __init__(
        self, launch: Launch | None, note: Callable[[str], object], clock: Callable[[], float] = time.time
    ) -> None:
        self._launch, self._note, self._clock = launch, note, clock
        self._settings = settings_of(launch)
        self._stall = StallWatch()
        self._queue: SimpleQueue[Message | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._errors: SimpleQueue[str] = SimpleQueue()

    def __enter__(self) -> Notifier:
        return self

    def __exit__(self, *error: object) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(_CLOSE)
            if self._thread.is_alive():
                self._errors.put(f"it was not finished within {_CLOSE:g} s")
        self._show_errors()

    def observe(self, event: FollowEvent) -> None:
        """Notify of trouble that the event shows."""
        if not self._settings:
            return
        if isinstance(event, StatusChanged) and event.status == "Interrupted":
            self._trouble("spot_interruption", event.time_ms, "AWS takes its spot capacity away", event.message)
        elif isinstance(event, CheckpointsStalled):
            lasted = duration(round(event.lasted))
            self._trouble("checkpoints_stall", event.time_ms, f"no checkpoint has arrived in S3 for {lasted}")
        elif isinstance(event, JobEvent) and event.name == "step":
            self._stall.step(event.time_ms / 1000)
        elif isinstance(event, JobEvent) and event.name == "hang" and event.fields.get("what") != "over":
            limit = event.fields.get("limit")
            reason = f"no progress for {limit} s; the log has the stacks" if isinstance(limit, int | float) else ""
            self._trouble("hang", event.time_ms, f"it hangs on {event.host}", reason)

    def tick(self, read_at: float | None) -> None:
        """Between two polls: notify of a stall, and show the errors of receivers.

        Args:
            read_at: as of the follower; None after a poll that has not read every log, as steps may be missing then.
        """
        since = self._stall.stalled_since(read_at) if self._settings and read_at is not None else None
        if since is not None and read_at is not None:
            lasted = duration(round(read_at - since))
            self._trouble("stall", int(since * 1000), f"it has reported no step for {lasted}", is_new=True)
        self._show_errors()

    def end(self, outcome: Outcome, usd: float | None) -> None:
        """Notify of the end."""
        job, where = self._names()
        message = Message(
            event="end",
            kind=_KINDS.get(outcome.status, "stopped"),
            job=job,
            where=where,
            summary=outcome.summary,
            reason=outcome.reason,
            exit_code=int(outcome.exit_code),
            training_seconds=outcome.training_seconds,
            billable_seconds=outcome.billable_seconds,
            usd=None if usd is None else round(usd, 6),
        )
        self._send(message, "end")

    def _trouble(self, kind: Any, time_ms: int, summary: str, reason: str = "", *, is_new: bool = False) -> None:
        if is_new or self._clock() - time_ms / 1000 <= _OLD:
            job, where = self._names()
            self._send(Message("trouble", kind, job, where, summary, reason), f"{kind} {time_ms}")

    def _names(self) -> tuple[str, str]:
        return (self._launch.job, self._launch.where) if self._launch is not None else ("", "")

    def _send(self, message: Message, name: str) -> None:
        if message.event not in self._settings.get("on", ()) or not claim_notification(Notified(message.job, name)):
            return
        if self._thread is None:
            # It is a daemon: a receiver that never answers does not keep the command from exiting.
            self._thread = Thread(target=self._run, name="notifications", daemon=True)
            self._thread.start()
        self._queue.put(message)

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            for send in self._receivers():
                try:
                    send(message)
                except NotSent as error:
                    self._errors.put(str(error))

    def _receivers(self) -> list[Callable[[Message], None]]:
        receivers: list[Callable[[Message], None]] = []
        command, variable, topic = (self._settings.get(one) for one in ("command", "webhook", "sns"))
        if command is not None and self._launch is not None:
            receivers.append(partial(to_command, command, Path(self._launch.job_file).absolute().parent))
        if variable is not None:
            receivers.append(partial(_to_variable, variable))
        if topic is not None:
            receivers.append(partial(to_sns, topic))
        return receivers

    def _show_errors(self) -> None:
        while not self._errors.empty():
            self._note(f"a notification was not sent: {self._errors.get()}")


def _to_variable(variable: str, message: Message) -> None:
    try:
        address = require_webhook(variable, os.environ)
    except SmdpError as error:
        raise NotSent(str(error)) from error
    to_webhook(address, message)


def settings_of(launch: Launch | None) -> dict[str, Any]:
    """The section ``notify`` of a launch; empty if it has none, or for a local run that does not notify."""
    if launch is None or launch.notify is None:
        return {}
    try:
        settings = json.loads(launch.notify)
    except ValueError:
        return {}
    if not isinstance(settings, dict) or (launch.where == LOCAL and not settings.get("local")):
        return {}
    return settings


def notifier_of(job: str, note: Callable[[str], object]) -> Notifier:
    """The notifier of a job that was launched from this folder; for any other job, one that sends nothing."""
    return Notifier(find_launch(job), note)
