"""Runs a compiler so that none of its processes and files outlive the process that waits for it.

``run`` starts this file as a program, the supervisor, in a session of its own. The supervisor starts the compiler, and
holds the read end of a pipe whose write end only the waiting process has. However that process ends, also by SIGKILL,
the pipe closes, and the supervisor ends the compiler and removes its folder of temporary files.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, List, NoReturn

_STOP_S = 2.0  # how long the compiler has to remove its files after SIGTERM
_LONGEST_STOP_S = 15.0


class NotStarted(Exception):
    """The compiler could not be started; the text says why."""


class TookTooLong(Exception):
    """The compiler did not exit in time."""


def run(command: List[str], log: int, scratch: Path, longest: float, show: Callable[[float], None]) -> int:
    """The compiler's exit code.

    Args:
        log: the descriptor of the file that gets its output.
        scratch: an empty folder for its temporary files.
        longest: seconds that it may take.
        show: is called each second with the seconds that have passed.
    """
    python = sys.executable or shutil.which("python3") or ""
    try:
        started = subprocess.Popen(
            [python, "-I", "-S", __file__, str(scratch), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise NotStarted(f"{python or 'python3'}: {error.strerror or error}") from error
    with started as supervisor:
        try:
            _wait(supervisor, longest, show)
        finally:
            reason = _end(supervisor)
    if reason:
        raise NotStarted(reason)
    return supervisor.returncode


def _wait(supervisor: "subprocess.Popen[bytes]", longest: float, show: Callable[[float], None]) -> None:
    began = time.monotonic()
    while True:
        show(time.monotonic() - began)
        try:
            supervisor.wait(timeout=1)
            return
        except subprocess.TimeoutExpired:
            if time.monotonic() - began > longest:
                raise TookTooLong from None


def _end(supervisor: "subprocess.Popen[bytes]") -> str:
    """Close the pipe and wait; return what the supervisor has written."""
    written = b""
    with contextlib.suppress(subprocess.TimeoutExpired):
        written, _ = supervisor.communicate(timeout=_LONGEST_STOP_S)
    if supervisor.returncode is None or supervisor.returncode < 0:
        with contextlib.suppress(ProcessLookupError):  # its group lives on in the compiler's processes
            os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.wait()
    return written.decode(errors="replace")


def _supervise(scratch: str, command: List[str]) -> NoReturn:
    # A function, since a program would inherit SIG_IGN.
    signal.signal(signal.SIGTERM, lambda *_: None)
    environment = {**os.environ, "TMPDIR": scratch, "LC_ALL": "C"}
    try:
        compiler = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, stderr=2, env=environment)
    except OSError as error:
        sys.stdout.write(error.strerror or str(error))
        sys.stdout.flush()
        os._exit(1)
    is_stopping = threading.Event()
    waiting = threading.Thread(target=_exit_with, args=(compiler, is_stopping))
    waiting.start()
    os.read(0, 1)  # until the pipe closes
    is_stopping.set()
    os.killpg(0, signal.SIGTERM)
    waiting.join(_STOP_S)
    shutil.rmtree(scratch, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _exit_with(compiler: "subprocess.Popen[bytes]", is_stopping: threading.Event) -> None:
    code = compiler.wait()
    if not is_stopping.is_set():
        os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    _supervise(sys.argv[1], sys.argv[2:])
