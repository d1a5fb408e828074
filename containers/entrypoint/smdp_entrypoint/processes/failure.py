"""Names the first cause of a job's failure and writes it down.

When one rank fails, its peers fail as well, with broken connections, and may well end before it does. So the cause is
the failure that *began* first: at the first line of its traceback, else at its end. One correction: a rank's sockets
can close a moment before its traceback is printed or its end is seen. So among failures that began within
`SAME_MOMENT_S` a crash, which no peer can cause, goes first, and what reads like a lost peer goes last.

A worker that has printed a traceback and hangs in its shutdown is a candidate as well. But so looks one that handled an
exception and is well, so it must have fallen silent at once, and either shortly before the first end or with only
lost peers among those that ended.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field

from smdp_entrypoint.processes.child import Child, Ended
from smdp_entrypoint.processes.tracebacks import Traceback

LONGEST_FILE = 1024  # characters of the failure file that the platform shows
_LONGEST_ERROR = 640
SAME_MOMENT_S = 0.25
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
# A traceback was the end of its process if little was written after it and, unless Python's own exit code for an
# uncaught exception says so, if it is not long past.
_FEW_LINES = 100
_NOT_LONG_S = 60.0
# The same for a worker that still runs.
_SILENCE_LINES = 8  # enough for a message of several lines
_SHORTLY_S = 30.0


@dataclass(frozen=True)
class Failure:
    """`code` and `signum` are None both if the worker had not ended when it was named. `error` is the last line of
    its traceback, or ""; `tail` the lines worth showing."""

    rank: int
    local_rank: int
    host: str
    began: float
    code: int | None
    signum: int | None
    error: str
    tail: list[str] = field(default_factory=list)

    @property
    def has_ended(self) -> bool:
        return self.code is not None or self.signum is not None

    @property
    def exit_code(self) -> int:
        """What the entrypoint ends with, in the shell's way for signals; 1, as Python, if it had not ended."""
        return self.code or (128 + self.signum if self.signum else 1)

    @property
    def summary(self) -> str:
        """One line: `ValueError: bad (rank 3 on algo-2, exit code 1)`."""
        if self.error:
            return f"{_cut(self.error)} ({', '.join(filter(None, [self._who, self._end_in_brief]))})"
        if self.signum:
            hint = _HINTS.get(signal.Signals(self.signum)) if self.signum in _SIGNALS else None
            return f"{self._who} was killed by {signal_name(self.signum)}" + (f" ({hint})" if hint else "")
        return f"{self._who} ended with exit code {self.code}"

    @property
    def _who(self) -> str:
        return f"rank {self.rank} on {self.host}"

    @property
    def _end_in_brief(self) -> str:
        if self.signum:
            return f"killed by {signal_name(self.signum)}"
        return "" if self.code is None else f"exit code {self.code}"

    def event_fields(self) -> dict[str, object]:
        """The fields of `worker_exit` (docs/events.md)."""
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


def examine(child: Child, rank: int, local_rank: int, host: str) -> Failure | None:
    """How this worker failed, if it did: by its end, or by a traceback that it has not survived yet."""
    ended, traceback = child.ended, child.watch.last
    if ended is not None and ended.well:
        return None
    if traceback is not None and _was_fatal(traceback, ended):
        began, error, tail = traceback.began, traceback.error, list(traceback.lines)
    elif ended is not None:
        began, error, tail = ended.at, "", list(child.stderr_tail)
    else:
        return None
    code, signum = (ended.code, ended.signum) if ended else (None, None)
    return Failure(rank, local_rank, host, began, code, signum, error, tail)


def _was_fatal(traceback: Traceback, ended: Ended | None) -> bool:
    if not traceback.error or traceback.followed_by > _FEW_LINES:
        return False
    if ended is None:
        return traceback.followed_by + traceback.spoken <= _SILENCE_LINES
    return ended.code == 1 or ended.at - traceback.began <= _NOT_LONG_S


def first_cause(failures: list[Failure]) -> Failure:
    """Of at least one failure."""
    candidates = _candidates(failures)
    earliest = min(failure.began for failure in candidates)
    together = [failure for failure in candidates if failure.began - earliest <= SAME_MOMENT_S]
    return min(together, key=lambda failure: (precedence(failure), failure.began, failure.rank))


def precedence(failure: Failure) -> int:
    """0 for a crash, which no peer can cause, 2 for what reads like a lost peer, else 1."""
    if failure.signum in _CRASHES and not failure.error:
        return 0
    return 2 if _reads_like_lost_peer(failure) else 1


def _candidates(failures: list[Failure]) -> list[Failure]:
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
    kept: list[str] = []
    for line in reversed(failure.tail):
        room -= len(line) + 1
        if room < 0:
            break
        kept.insert(0, line)
    if not kept and failure.tail:
        kept = failure.tail[-1:]  # a single line longer than the room is better cut than missing
    return "\n".join([failure.summary, *kept])[:LONGEST_FILE]


def _cut(error: str) -> str:
    return error if len(error) <= _LONGEST_ERROR else error[: _LONGEST_ERROR - 1] + "…"
