"""The thread of one tracker: starts it, sends it the reports, and repeats what failed."""

import threading
import time
from collections import deque
from typing import Callable, Deque, List, NamedTuple, Optional

from .numbers import Report

#: Reports that wait for a tracker; the oldest ones are dropped.
MOST_WAITING = 10_000
_MOST_AT_ONCE = 500
_LESS_AFTER_A_FAILURE = 8  # times
_FAILURES_ALONE = 2  # of a report, before others are sent first
_SECONDS_BETWEEN_SENDS = 1.0
_SHORTEST_GAP, _LONGEST_GAP = 0.5, 60.0  # between two tries
_LONGEST_GAP_AT_THE_END = 1.0
_TRIES_AFTER_THE_LAST_REPORT = 4


class NotInstalled(Exception):
    """The tracker's client is not installed; the message says what to do."""


class Tracker:
    """A client of a tracker. All methods are called in one thread; any exception but the one above may be temporary."""

    name = ""
    #: Prints a line about this tracker.
    say: Callable[[str], None] = staticmethod(lambda _: None)

    def start(self) -> str:
        """Begin the run, or continue the run of a job that was restarted. Returns where a person finds it."""
        raise NotImplementedError

    def send(self, reports: List[Report]) -> None:
        raise NotImplementedError

    def finish(self, succeeded: bool) -> None:
        """End the run."""
        raise NotImplementedError


class _Waiting(NamedTuple):
    """A report, how often it failed alone, and how many calls had succeeded then."""

    report: Report
    failures: int = 0
    after: Optional[int] = None


class Sender:
    """Args:
    say: prints a line about this tracker.
    """

    def __init__(self, tracker: Tracker, say: Callable[[str], None], most: int = MOST_WAITING) -> None:
        self._tracker = tracker
        self._tracker.say = self._say = say
        self._most = most
        self._waiting: Deque[_Waiting] = deque()
        self._at_once = _MOST_AT_ONCE
        self._sent = 0  # successful calls
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
            self._waiting.append(_Waiting(report))
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
            while self._wait() and self._repeat(self._send):
                pass
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
            batch = self._take()
            self._taken = len(batch)
        if not batch:
            return
        try:
            self._tracker.send([one.report for one in batch])
        except Exception:
            with self._changed:
                self._put_back(batch)
            raise
        finally:
            self._taken = 0
        self._sent += 1
        self._at_once = min(2 * self._at_once, _MOST_AT_ONCE)

    def _take(self) -> List[_Waiting]:
        """The next reports of a call: a report that failed alone is again alone."""
        batch = [self._waiting.popleft()] if self._waiting else []
        while self._waiting and len(batch) < self._at_once and not (batch[0].failures or self._waiting[0].failures):
            batch.append(self._waiting.popleft())
        return batch

    def _put_back(self, batch: List[_Waiting]) -> None:
        """After a failure, find out whether the tracker is down or cannot store one of the reports.

        Fewer reports are sent at once. A report that fails alone has to wait for the others. If it fails again after
        others succeeded, it is lost.
        """
        self._at_once = max(1, len(batch) // _LESS_AFTER_A_FAILURE)
        if len(batch) > 1:
            self._waiting.extendleft(reversed(batch))
            return
        one = batch[0]._replace(failures=batch[0].failures + 1)
        if one.after not in (None, self._sent):
            self._lost += 1
        elif one.failures < _FAILURES_ALONE:
            self._waiting.appendleft(one)
        else:
            self._waiting.append(one._replace(after=self._sent))

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
            text = f"{type(error).__name__}: {first_line(error)}"
            self._say(f"{text}; the training continues, and sending is tried again")


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:300]
