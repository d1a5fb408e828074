"""Finds the first cause of a job's failure and describes it.

When one rank fails, its peers fail too, with broken connections, and may exit before it does. So the cause is the
failure that *began* first: with the first line of its traceback, else with its exit. One correction: a rank's sockets
can close a moment before it prints its traceback or its exit is noticed. So among failures that began within
`SAME_MOMENT_S` a crash, which no peer can cause, comes first, and an error that looks like a lost peer comes last.

A worker that has printed a traceback and hangs in its shutdown is a candidate too, if it wrote nothing after the
traceback, and if the traceback came shortly before the first exit or all workers that exited report lost peers. A
healthy worker that handled an exception looks the same, unless its Python has reported an uncaught exception
(`worker_site`). So without this report it is a candidate only if all other failures report lost peers.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from typing import Iterable

from smdp_entrypoint.processes.child import Child, ExitStatus
from smdp_entrypoint.processes.tracebacks import Traceback

LONGEST_FILE = 1024  # characters of the failure file that the platform shows
_LONGEST_ERROR = 640
SAME_MOMENT_S = 0.25
# Values of `precedence`. A crash, which no peer can cause, has 0, and any other failure 1.
MAY_BE_HANDLED = 2
LOST_PEER = 3
_LOST_PEER = re.compile(
    r"Connection(Reset|Refused|Aborted)?Error\b|BrokenPipeError|EOFError|Dist\w*Error|PeerLost"
    r"|[Cc]onnection (reset|closed|refused)|closed by peer|[Bb]roken pipe|remote process exited|[Ss]ocket [Tt]imeout"
    r"|[Tt]imed out waiting|timeout caused pair closure|collective operation timeout"
)
_CRASHES = {signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_HINTS = {
    signal.SIGKILL: "out of memory, or killed from outside",
    signal.SIGBUS: "often a full /dev/shm",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGABRT: "native code gave up",
}
# Signals that the entrypoint, the platform or the kernel sends, whatever the process does.
_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGKILL)
# A traceback was fatal if the process wrote few lines after it and exited soon afterwards, or with Python's code for an
# uncaught exception.
_FEW_LINES = 100
_NOT_LONG_S = 60.0
_SILENCE_LINES = 8  # enough for a message of several lines
# The time limit for a worker that still runs.
_SHORTLY_S = 30.0


@dataclass(frozen=True)
class Failure:
    """`code` and `signum` are both None if the worker was still running. `error` is the last line of its traceback, or
    ""; `tail` the lines to show. `trains` is False for the process of a host outside the distribution.
    `may_be_handled`: the worker still runs, and the script may have handled the exception."""

    rank: int
    local_rank: int
    host: str
    began: float
    code: int | None
    signum: int | None
    error: str
    tail: list[str] = field(default_factory=list)
    trains: bool = True
    may_be_handled: bool = False

    @property
    def has_ended(self) -> bool:
        return self.code is not None or self.signum is not None

    @property
    def exit_code(self) -> int:
        """The entrypoint's exit code: 128 + N for signal N, as in a shell, and 1 if the worker was still running."""
        return self.code or (128 + self.signum if self.signum else 1)

    @property
    def summary(self) -> str:
        """One line: `ValueError: bad (rank 3 on algo-2, exit code 1)`."""
        if self.error:
            return f"{_cut(self.error)} ({', '.join(filter(None, [self._worker, self._end_in_brief]))})"
        if self.signum:
            hint = _HINTS.get(signal.Signals(self.signum)) if self.signum in _SIGNALS else None
            return f"{self._worker} was killed by {signal_name(self.signum)}" + (f" ({hint})" if hint else "")
        return f"{self._worker} exited with code {self.code}"

    @property
    def _worker(self) -> str:
        return f"rank {self.rank} on {self.host}" if self.trains else f"the script on {self.host}"

    @property
    def _end_in_brief(self) -> str:
        if self.signum:
            return f"killed by {signal_name(self.signum)}"
        return "" if self.code is None else f"exit code {self.code}"

    def event_fields(self) -> dict[str, object]:
        """The fields of `worker_exit` (docs/reference/events.md)."""
        return {
            "time": self.began,
            "rank": self.rank,
            "local_rank": self.local_rank,
            "code": self.code,
            "signal": signal_name(self.signum) if self.signum else None,
            "error": _cut(self.error or self.summary),
        }


_SIGNALS = {member.value for member in signal.Signals}


def signal_name(signum: int) -> str:
    return signal.Signals(signum).name if signum in _SIGNALS else f"signal {signum}"


def killed_from_outside(status: ExitStatus) -> bool:
    """Whether SIGTERM or SIGKILL ended the worker; a shell in between reports 128 + the signal's number."""
    return status.signum in _FROM_OUTSIDE or status.code in tuple(128 + signum for signum in _FROM_OUTSIDE)


def find_failure(child: Child, rank: int, local_rank: int, host: str) -> Failure | None:
    """The worker's failure, or None: an unsuccessful exit, or a fatal traceback before its exit."""
    status, traceback, is_uncaught = child.exit_status, child.watch.last, child.has_uncaught_exception
    if status is not None and status.succeeded:
        return None
    if traceback is not None and _was_fatal(traceback, child):
        began, error, tail = traceback.began, traceback.error, list(traceback.lines)
    elif status is not None:
        began, error, tail = status.at, "", list(child.stderr_tail)
    else:
        return None
    code, signum = (status.code, status.signum) if status else (None, None)
    may_be_handled = status is None and not is_uncaught
    return Failure(rank, local_rank, host, began, code, signum, error, tail, may_be_handled=may_be_handled)


def _was_fatal(traceback: Traceback, child: Child) -> bool:
    status = child.exit_status
    if not traceback.error or traceback.followed_by > _FEW_LINES:
        return False
    followed_by = traceback.followed_by + traceback.other_stream_lines
    if status is None:
        return followed_by <= _SILENCE_LINES
    soon = status.at - traceback.began <= _NOT_LONG_S
    if child.has_uncaught_exception:
        return soon or status.code == 1
    # The script may have handled the exception, and then have exited for another reason, such as sys.exit("a reason").
    if killed_from_outside(status):
        return False
    if not child.is_python:  # a shell may write more, and take longer, after its script has failed
        return soon or status.code == 1
    return (soon and followed_by <= _FEW_LINES) or (status.code == 1 and followed_by <= _SILENCE_LINES)


def first_cause(failures: list[Failure]) -> Failure:
    """The failure that began first, of at least one."""
    candidates = _candidates(failures)
    earliest = min(failure.began for failure in candidates)
    together = [failure for failure in candidates if failure.began - earliest <= SAME_MOMENT_S]
    return min(together, key=lambda one: (precedence(one), _reads_like_lost_peer(one), one.began, one.rank))


def precedence(failure: Failure) -> int:
    """The lowest is the cause among failures of the same moment."""
    if failure.may_be_handled:
        return MAY_BE_HANDLED
    if failure.signum in _CRASHES and not failure.error:
        return 0
    return LOST_PEER if _reads_like_lost_peer(failure) else 1


def has_certain_cause(precedences: Iterable[int]) -> bool:
    """Whether failures with these values include a cause, so that one that may be handled is none."""
    return any(value not in (LOST_PEER, MAY_BE_HANDLED) for value in precedences)


def _candidates(failures: list[Failure]) -> list[Failure]:
    if has_certain_cause(map(precedence, failures)):
        failures = [failure for failure in failures if not failure.may_be_handled]
    ended = [failure for failure in failures if failure.has_ended]
    if not ended or all(map(_reads_like_lost_peer, ended)):
        return failures
    first_end = min(failure.began for failure in ended)
    return [failure for failure in failures if failure.has_ended or first_end - failure.began <= _SHORTLY_S]


def _reads_like_lost_peer(failure: Failure) -> bool:
    return bool(_LOST_PEER.search(failure.error))


def failure_text(failure: Failure) -> str:
    """The summary and, below it, as many of the tail's last lines as fit."""
    room = LONGEST_FILE - len(failure.summary)
    lines: list[str] = []
    for line in reversed(failure.tail):
        room -= len(line) + 1
        if room < 0:
            break
        lines.insert(0, line)
    if not lines and failure.tail:
        lines = failure.tail[-1:]  # a single line that is too long is cut, not omitted
    return "\n".join([failure.summary, *lines])[:LONGEST_FILE]


def _cut(error: str) -> str:
    return error if len(error) <= _LONGEST_ERROR else error[: _LONGEST_ERROR - 1] + "…"
