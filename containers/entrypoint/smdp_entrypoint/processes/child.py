"""One started process: its group, its streams, how it ended.

A process that has ended is not reaped before its group is cleared (`clear`): as long as the zombie stands, the system
gives its number to nobody else, so a signal to the group can only reach what the process left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.processes.lines import LineAssembler
from smdp_entrypoint.processes.pipes import WriteTime, open_dated_pipe
from smdp_entrypoint.processes.tracebacks import TracebackWatch

_READ_SIZE = 64 * 1024
# What a process wrote before its end still stands in its pipe, which holds 64 KiB unless it was made larger (1 MiB at
# most without privileges).
_LAST_READ_LIMIT = 1024 * 1024
_TAIL_LINES = 40
_PR_SET_PDEATHSIG = 1
EVENT_PIPE = "SMDP_EVENT_PIPE"


@dataclass(frozen=True)
class Ended:
    """`code` is the exit code, or None if `signum` ended the process; `at` is wall-clock time."""

    code: int | None
    signum: int | None
    at: float

    @property
    def well(self) -> bool:
        return self.code == 0


class Stream:
    """The reading end of one of a child's pipes; `fd` is None once it is closed."""

    def __init__(self, fd: int, on_line: Callable[[str, float], None]) -> None:
        self.fd: int | None = fd
        self._written = WriteTime(fd)
        self._lines = LineAssembler()
        self._on_line = on_line
        os.set_blocking(fd, False)

    def read(self, now: float) -> int:
        """Pass on what is there, once; the number of bytes."""
        if self.fd is None:
            return 0
        try:
            chunk = os.read(self.fd, _READ_SIZE)
        except BlockingIOError:
            return 0
        lines = self._lines.feed(chunk)
        at = self._written.before(now) if lines else now
        for line in lines:
            self._on_line(line, at)
        if not chunk:
            self.close(now)
        return len(chunk)

    def close(self, now: float) -> None:
        """Stop reading and pass on a last line that has no end."""
        if self.fd is None:
            return
        os.close(self.fd)
        self.fd = None
        for line in self._lines.close():
            self._on_line(line, now)


class Child:
    """A process in a session of its own, which dies with us. `on_line` gets every line of both streams; `on_event` what
    the engine in it says, which has a pipe of its own, named in the variable SMDP_EVENT_PIPE."""

    def __init__(
        self,
        argv: list[str],
        environ: Mapping[str, str],
        cwd: Path,
        on_line: Callable[[str], None],
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        self.watch = TracebackWatch()
        self.stderr_tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self.ended: Ended | None = None
        self._on_line = on_line
        self._on_event = on_event
        self.streams: list[Stream] = []
        written: list[int] = []
        try:
            # Only the order of tracebacks matters, so only standard error is dated.
            self._open(os.pipe(), self._out_line, written)
            self._open(open_dated_pipe(), self._error_line, written)
            if on_event:
                self._open(os.pipe(), self._event_line, written)
                environ = {**environ, EVENT_PIPE: _identity(written[-1])}
            self._process = _start(argv, environ, cwd, written)
        except BaseException:
            for stream in self.streams:
                stream.close(0.0)
            raise
        finally:
            for fd in written:
                os.close(fd)
        self.pid = self._process.pid

    @property
    def is_silent(self) -> bool:
        """Nobody holds its standard output or error any more. What is left of it may hold the pipe for events."""
        return all(stream.fd is None for stream in self.streams[:2])

    def look(self, now: float) -> bool:
        """Whether the process has ended since the last look; `ended` then says how."""
        if self.ended is not None:
            return False
        state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if state is None:
            return False
        exited = state.si_code == os.CLD_EXITED
        self.ended = Ended(state.si_status if exited else None, None if exited else state.si_status, now)
        self._read_rest(now)
        return True

    def signal_group(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)

    def clear(self, now: float) -> None:
        """Kill what is left of the group, take the process off the system's table, stop reading."""
        self.signal_group(signal.SIGKILL)
        # Does not wait: a process in an uninterruptible system call must not hold us.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0 if self.ended else 1.0)
        for stream in self.streams:
            stream.close(now)

    def _open(self, pipe: tuple[int, int], on_line: Callable[[str, float], None], written: list[int]) -> None:
        self.streams.append(Stream(pipe[0], on_line))
        written.append(pipe[1])

    def _read_rest(self, now: float) -> None:
        for stream in self.streams:
            size = 0
            while size < _LAST_READ_LIMIT:
                got = stream.read(now)
                if not got:
                    break
                size += got

    def _out_line(self, line: str, now: float) -> None:
        if self.watch.last is not None:
            self.watch.last.spoken += 1
        self._on_line(line)

    def _event_line(self, line: str, now: float) -> None:
        if self._on_event:
            self._on_event(line)

    def _error_line(self, line: str, now: float) -> None:
        self.watch.line(line, now)
        self.stderr_tail.append(line)
        self._on_line(line)


def _identity(fd: int) -> str:
    """What the engine compares: a program in between may close the descriptor and leave the variable."""
    status = os.fstat(fd)
    return f"{fd}:{status.st_dev}:{status.st_ino}"


def _start(argv: list[str], environ: Mapping[str, str], cwd: Path, written: list[int]) -> subprocess.Popen[bytes]:
    """`written`: the ends of pipes for standard output, standard error and, if there is a third, events."""
    try:
        return subprocess.Popen(
            argv,
            env=environ,
            cwd=str(cwd),
            stdin=subprocess.DEVNULL,
            stdout=written[0],
            stderr=written[1],
            pass_fds=written[2:],
            start_new_session=True,
            # Between fork and exec only two system calls are made, so no lock of another thread can be missed.
            preexec_fn=_die_with_parent(os.getpid()),  # noqa: PLW1509
        )
    except (OSError, ValueError, UnicodeEncodeError) as reason:
        raise ProgramError(f"{' '.join(argv)[:300]} cannot be started in {cwd}: {reason}.") from reason


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    """A killed entrypoint cannot end its workers any more; the kernel does it then."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):  # a Python built without it; as process 1 we do not need it
        return None

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
