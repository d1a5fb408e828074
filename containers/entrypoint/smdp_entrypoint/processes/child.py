"""A started process: its process group, its streams and its exit.

An exited process is reaped only after its group is killed (`clean_up`): while the zombie exists, the system does not
reuse its number, so a signal to the group can only reach processes that it started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Mapping

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.processes.lines import LineAssembler
from smdp_entrypoint.processes.pipes import WriteTime, open_dated_pipe
from smdp_entrypoint.processes.tracebacks import TracebackWatch

_READ_SIZE = 64 * 1024
# The output that an exited process leaves in its pipe: a pipe holds 64 KiB, or up to 1 MiB if the process enlarged it
# without privileges.
_LAST_READ_LIMIT = 1024 * 1024
_TAIL_LINES = 40
# A progress bar has no newline until it is complete. Its state is passed on if its stream has shown nothing for this
# long.
BAR_INTERVAL_S = 10.0
_PR_SET_PDEATHSIG = 1
EVENT_PIPE = "SMDP_EVENT_PIPE"
# The line, followed by a process ID, that a Python process writes to this pipe after an uncaught exception's traceback.
_UNCAUGHT = "uncaught exception in process "


@dataclass(frozen=True)
class ExitStatus:
    """How a process exited. `code` is None if the signal `signum` ended it; `at` is wall-clock time."""

    code: int | None
    signum: int | None
    at: float

    @property
    def succeeded(self) -> bool:
        return self.code == 0


class Stream:
    """The reading end of one of a child's pipes; `fd` is None once it is closed."""

    def __init__(self, fd: int, on_line: Callable[[str, float], None]) -> None:
        self.fd: int | None = fd
        self._written = WriteTime(fd)
        self._lines = LineAssembler()
        self._on_line = on_line
        self._shown_at: float | None = None  # monotonic
        self._is_drained = True
        os.set_blocking(fd, False)

    def read(self, now: float) -> int:
        """Read once, pass the complete lines on and return the number of bytes read."""
        if self.fd is None:
            return 0
        try:
            chunk = os.read(self.fd, _READ_SIZE)
        except BlockingIOError:
            return 0
        lines = self._lines.feed(chunk)
        self._is_drained = len(chunk) < _READ_SIZE
        if lines:
            self._shown_at = None
        at = self._written.before(now) if lines else now
        for line in lines:
            self._on_line(line, at)
        if not chunk:
            self.close(now)
        return len(chunk)

    def show_bar(self, now: float, monotonic: float) -> None:
        """Pass on the state of a progress bar from time to time; it is called often, after `read`."""
        if self._shown_at is None:
            self._shown_at = monotonic
        # What follows in a full pipe may be the rest of the state.
        if monotonic - self._shown_at < BAR_INTERVAL_S or not self._is_drained:
            return
        bar = self._lines.bar()
        if bar is not None:
            self._shown_at = monotonic
            self._on_line(bar, now)

    def close(self, now: float) -> None:
        """Stop reading and pass on a last line without a newline."""
        if self.fd is None:
            return
        os.close(self.fd)
        self.fd = None
        for line in self._lines.close():
            self._on_line(line, now)


class Child:
    """A process in its own session, which the kernel kills if the entrypoint exits. `on_line` receives every line of
    both output streams; `on_event` receives the lines of the engine, which writes to a pipe of its own, named in the
    variable SMDP_EVENT_PIPE. `has_uncaught_exception`: its Python has reported one (`worker_site`).
    `is_python`: the process runs this Python itself, so its output is that of the script."""

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
        self.exit_status: ExitStatus | None = None
        self.has_uncaught_exception = False
        self.is_python = argv[0] == sys.executable
        self._on_line = on_line
        self._on_event = on_event
        self.streams: list[Stream] = []
        written: list[int] = []
        try:
            # Only tracebacks are ordered by time, so only standard error has a pipe with write times.
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
    def output_closed(self) -> bool:
        """Whether no process has its standard output or error open any more. The pipe for events may still be open."""
        return all(stream.fd is None for stream in self.streams[:2])

    @property
    def is_reaped(self) -> bool:
        """Whether the system may give the process ID to another process."""
        return self._process.returncode is not None

    def poll(self, now: float) -> bool:
        """Whether the process has exited since the last call; `exit_status` then says how."""
        if self.exit_status is not None:
            return False
        state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if state is None:
            return False
        exited = state.si_code == os.CLD_EXITED
        self.exit_status = ExitStatus(state.si_status if exited else None, None if exited else state.si_status, now)
        self._read_rest(now)
        return True

    def signal_group(self, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signum)

    def clean_up(self, now: float) -> None:
        """Kill the rest of the group, reap the process and stop reading."""
        self.signal_group(signal.SIGKILL)
        # No wait without a limit: a process in an uninterruptible system call must not block the entrypoint.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0 if self.exit_status else 1.0)
        for stream in self.streams:
            stream.close(now)

    def _open(self, pipe: tuple[int, int], on_line: Callable[[str, float], None], written: list[int]) -> None:
        self.streams.append(Stream(pipe[0], on_line))
        written.append(pipe[1])

    def _read_rest(self, now: float) -> None:
        for stream in self.streams:
            size = 0
            while size < _LAST_READ_LIMIT:
                count = stream.read(now)
                if not count:
                    break
                size += count

    def _out_line(self, line: str, now: float) -> None:
        if self.watch.last is not None:
            self.watch.last.other_stream_lines += 1
        self._on_line(line)

    def _event_line(self, line: str, now: float) -> None:
        if line.startswith(_UNCAUGHT):
            # A Python process that the worker started may have inherited the pipe.
            self.has_uncaught_exception |= line == f"{_UNCAUGHT}{self.pid}"
        elif self._on_event:
            self._on_event(line)

    def _error_line(self, line: str, now: float) -> None:
        self.watch.line(line, now)
        self.stderr_tail.append(line)
        self._on_line(line)


def _identity(fd: int) -> str:
    """The engine checks this identity: a program in between may close the descriptor and leave the variable set."""
    status = os.fstat(fd)
    return f"{fd}:{status.st_dev}:{status.st_ino}"


def _start(argv: list[str], environ: Mapping[str, str], cwd: Path, written: list[int]) -> subprocess.Popen[bytes]:
    """`written`: the writing ends of the pipes for standard output, standard error and, if present, events."""
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
            # The function makes only two system calls between fork and exec, so it needs no lock of another thread.
            preexec_fn=die_with_parent(os.getpid()),  # noqa: PLW1509
        )
    except (OSError, ValueError, UnicodeEncodeError) as reason:
        raise ProgramError(f"{' '.join(argv)[:300]} cannot be started in {cwd}: {reason}.") from reason


def die_with_parent(parent: int) -> Callable[[], None] | None:
    """A function for the child process that has the kernel kill it when the entrypoint exits."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):  # a Python without ctypes; process 1 does not need this
        return None

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return in_child
