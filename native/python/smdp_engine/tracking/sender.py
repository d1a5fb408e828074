"""The thread of one tracker: starts it, sends it the reports, and repeats what failed."""

import threading
import time
from collections import deque
from typing import Callable, Deque, List

from .numbers import Report

#: Reports that wait for a tracker; the oldest ones are dropped.
MOST_WAITING = 10_000
_MOST_AT_ONCE = 500
_SECONDS_BETWEEN_SENDS = 1.0
_SHORTEST_GAP, _LONGEST_GAP = 0.5, 60.0  # between two tries
_LONGEST_GAP_AT_THE_END = 1.0
_TRIES_AFTER_THE_LAST_REPORT = 4


class NotInstalled(Exception):
    """The tracker's client is not installed; the message says what to do."""


class Refused(Exception):
    """The tracker refuses these reports, and would refuse them again."""


class Tracker:
    """A client of a tracker. All methods are called in one thread; any exception but the two above is temporary."""

    name = ""

    def start(self) -> str:
        """Begin the run, or continue the run of a job that was restarted. Returns where a person finds it."""
        raise NotImplementedError

    def send(self, reports: List[Report]) -> None:
        raise NotImplementedError

    def finish(self, succeeded: bool) -> None:
        """End the run."""
        raise NotImplementedError


class Sender:
    """Args:
    say: prints a line about this tracker.
    """

    def __init__(self, tracker: Tracker, say: Callable[[str], None], most: int = MOST_WAITING) -> None:
        self._tracker = tracker
        self._say = say
        self._most = most
        self._waiting: Deque[Report] = deque()
        self._lost = 0
        self._taken = 0  # in the call of the tracker that has not returned yet
        self._changed = threading.Condition()
        self._is_closing = False
        self._is_without_client = False
        self._has_failed = False  # and the warning was printed
        self._succeeded = True
        self._thread = threading.Thread(target=self._run, name=f"smdp-tracking-{tracker.name}", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def put(self, report: Report) -> None:
        with self._changed:
            if len(self._waiting) >= self._most:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(report)
            self._changed.notify()

    def close(self, succeeded: bool) -> None:
        """No more reports follow. Does not wait."""
        with self._changed:
            self._succeeded = succeeded
            self._is_closing = True
            self._changed.notify()

    def join(self, seconds: float) -> None:
        """Wait for the tracker, and print what it did not take."""
        self._thread.join(max(0.0, seconds))
        with self._changed:
            missing = self._lost + self._taken + len(self._waiting)
        if self._is_without_client:
            return
        reason = "it did not answer in time; " if self._thread.is_alive() else ""
        if missing:
            self._say(f"{reason}{missing} reports were not sent")
        elif reason:
            self._say("it did not end the run in time")

    def _run(self) -> None:
        try:
            if not self._repeat(self._start):
                return
            while self._wait():
                if not self._repeat(self._send):
                    return
            self._tracker.finish(self._succeeded)
        except NotInstalled as error:
            self._is_without_client = True
            self._say(f"{error}; the training continues without it")
            with self._changed:
                self._most = 0
                self._waiting = deque(maxlen=0)
        except Exception as error:
            self._warn(error)

    def _repeat(self, action: Callable[[], None]) -> bool:
        """Do the action until it succeeds. False: it still fails some seconds after the last report."""
        gap = _SHORTEST_GAP
        left = _TRIES_AFTER_THE_LAST_REPORT
        while True:
            left -= self._is_closing
            try:
                action()
            except NotInstalled:
                raise
            except Exception as error:
                self._warn(error)
                if left <= 0:
                    return False
                self._pause(gap)
                gap = min(2 * gap, _LONGEST_GAP)
            else:
                return True

    def _pause(self, seconds: float) -> None:
        """Wait; shortly, where no more reports follow."""
        if not self._is_closing:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing, seconds)
        else:
            time.sleep(min(seconds, _LONGEST_GAP_AT_THE_END))

    def _start(self) -> None:
        self._say(self._tracker.start())

    def _send(self) -> None:
        with self._changed:
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_AT_ONCE))]
            self._taken = len(batch)
        if not batch:
            return
        try:
            self._tracker.send(batch)
        except Refused as error:
            self._lost += len(batch)
            self._warn(error)
        except Exception:
            with self._changed:
                self._waiting.extendleft(reversed(batch))
            raise
        finally:
            self._taken = 0

    def _wait(self) -> bool:
        """Wait for reports. False if all are sent and no more follow."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closing, _SECONDS_BETWEEN_SENDS)
            self._changed.wait_for(lambda: self._waiting or self._is_closing)
            return bool(self._waiting)

    def _warn(self, error: Exception) -> None:
        """Once: the first error is the one to fix."""
        if not self._has_failed:
            self._has_failed = True
            first = next(iter(str(error).strip().splitlines()), "")
            self._say(f"{type(error).__name__}: {first[:300]}; the training continues, and sending is tried again")
