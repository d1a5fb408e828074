"""In the script's process on rank 0: starts the tracking process at the first report, and writes event lines to it."""

import atexit
import ctypes
import math
import os
import select
import subprocess
import sys
import threading
import time
from typing import Dict, Optional, Tuple

from .._library import library

#: The trackers of the job, separated by commas.
TRACKERS = "SMDP_TRACKING"
#: Seconds that the trackers have for the last reports when the script ends.
EXIT_SECONDS = "SMDP_TRACKING_EXIT_S"
DEFAULT_EXIT_S = 10.0
_LONGEST_EXIT_S = 600.0
#: The tracking process ends itself, but on a busy host it notices the end of the script later.
_BUSY_HOST_S = 5.0
#: Bytes of reports that the tracking process has not read yet; more are dropped.
_MOST_WAITING = 1 << 20
_PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031  # fcntl.F_SETPIPE_SZ, which Python has since 3.10
#: Variables that make another process a rank, or that measure one.
_NOT_PASSED = ("RANK", "LOCAL_RANK", "SMDP_EVENT_PIPE", "SMDP_COUNTERS_S", "SMDP_TIMING_S", "SMDP_TRACE_DIR")
#: The script's folder is left out of the search path: a file logging.py there is not Python's.
_PROGRAM = "import sys; sys.path[:] = filter(None, sys.path); from smdp_engine.tracking.process import main; main()"

#: The last line of the pipe begins with it; the exit status of the script follows. The engine's library writes it.
EXIT = "exit "
#: Seconds that a report waits for another one, which a signal handler would interrupt for ever.
_LONGEST_WAIT_S = 1.0


def exit_seconds() -> float:
    """SMDP_TRACKING_EXIT_S, or the default where it is no number."""
    try:
        seconds = float(os.environ.get(EXIT_SECONDS) or DEFAULT_EXIT_S)
    except ValueError:
        return DEFAULT_EXIT_S
    return DEFAULT_EXIT_S if math.isnan(seconds) else min(max(seconds, 0.0), _LONGEST_EXIT_S)


class Reports:
    """The pipe to the tracking process. No method raises, and only `close` waits for the process, a limited time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._pipe = -1
        self._waiting = b""
        self._dropped = 0
        self._has_failed = False

    def write(self, line: str) -> None:
        """Send an event line without its line break."""
        if os.getpid() != self._owner:  # a process that the script forked, such as a worker of a data loader
            return
        if not self._lock.acquire(timeout=_LONGEST_WAIT_S):
            self._dropped += 1
            return
        try:
            if not self._has_failed:
                self._send(line.encode() + b"\n")
        except Exception as error:
            self._fail(f"the tracking process does not run ({type(error).__name__}: {error})")
        finally:
            self._lock.release()

    def close(self) -> None:
        """Write what the pipe had no space for. After that the engine's library writes the exit status."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            process, self._process = self._process, None
            has_failed, self._has_failed = self._has_failed, True
        if process is None:
            return
        if not has_failed and not self._write_rest():
            process.kill()
            _say("the tracking process does not read the last numbers, so it was killed")
        process.returncode = 0  # the engine's library waits for it; without this, Python warns that it still runs
        if self._dropped:
            _say(f"{self._dropped} reports were dropped: the tracking process did not read them in time")

    def _write_rest(self) -> bool:
        ends = time.monotonic() + _BUSY_HOST_S
        poll = select.poll()
        poll.register(self._pipe, select.POLLOUT)
        while self._waiting:
            if not poll.poll(max(0.0, ends - time.monotonic()) * 1000):
                return False
            try:
                self._waiting = self._waiting[os.write(self._pipe, self._waiting) :]
            except BlockingIOError:
                continue
            except OSError:
                break  # it has ended
        return True

    def _send(self, line: bytes) -> None:
        if self._process is None:
            self._process, self._pipe = _start()
            close_at_exit()
        if len(self._waiting) + len(line) > _MOST_WAITING:
            self._dropped += 1
        else:
            self._waiting += line
        try:
            written = os.write(self._pipe, self._waiting)
        except BlockingIOError:
            return
        self._waiting = self._waiting[written:]

    def _fail(self, reason: str) -> None:
        self._has_failed = True
        self._waiting = b""
        _say(f"{reason}: no more numbers are sent, the training continues")


def _start() -> "Tuple[subprocess.Popen[bytes], int]":
    """The process, and the pipe to it, which the engine's library owns: it closes the pipe in forked processes."""
    if not sys.executable:
        raise OSError("this Python does not know its own path")
    report_exit = library().smdp_report_exit
    reading, pipe = os.pipe()
    try:
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdin=reading, env=_environment())
    except BaseException:
        os.close(pipe)
        raise
    finally:
        os.close(reading)
    os.set_blocking(pipe, False)
    _enlarge(pipe)
    if report_exit(pipe, process.pid, ctypes.c_double(exit_seconds() + _BUSY_HOST_S), None):
        raise OSError("the C library has no memory left")
    return process, pipe


def _enlarge(fd: int) -> None:
    """Let the pipe hold the reports until the tracking process has imported the trackers' clients."""
    try:
        import fcntl

        fcntl.fcntl(fd, _SET_PIPE_SIZE, _PIPE_BYTES)
    except (ImportError, OSError):
        return  # the pipe keeps its size


def _environment() -> Dict[str, str]:
    """The script's variables of this moment, which may contain keys that the script has read meanwhile."""
    variables = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
    variables["SMDP_TIMING_S"] = "0"
    variables["CUDA_VISIBLE_DEVICES"] = ""  # TensorBoard's client may import TensorFlow, which takes all GPU memory
    return variables


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"smdp: tracking: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


_reports = Reports()
_closes = False


def report(line: str) -> None:
    """Send an event line of rank 0 to the job's trackers. Does nothing without SMDP_TRACKING; never raises."""
    if os.environ.get(TRACKERS):
        _reports.write(line)


def close_at_exit() -> None:
    """Send the last reports at the end of this process, after all functions that are registered with atexit later.

    A module that reports at the exit of the process calls this before it registers itself.
    """
    global _closes  # noqa: PLW0603 (atexit has one list for the process)
    if not _closes and os.environ.get(TRACKERS):
        _closes = True
        atexit.register(_reports.close)
