"""Starts Python processes by forking one that has imported their modules, such as torch.

The imports take longer than most tests. The forking process has one thread and, for ranks, has loaded nothing of this
project. A forked process behaves like a new interpreter and has its own random seeds; only the seed of string hashes is
shared.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import IO, Dict, List, Optional, Sequence, Tuple

TORCH = ("torch", "torch.distributed", "torch._dynamo")  # the first optimizer imports the last one
_LARGEST = 1 << 17  # bytes of a request
_ENV = {**os.environ, "OMP_NUM_THREADS": "1"}  # of the forking process
# Variables that the loader, an allocator, the interpreter and torch read before a script begins.
_EARLY = ("LANG", "LC_", "LD_", "MALLOC_", "GLIBC_", "OMP_", "MKL_", "PYTHON", "TORCH_", "TZ")

_EXITED = "the forking process has exited"

is_possible = sys.version_info >= (3, 9)  # pidfd_open, recv_fds


class ForkedProcess:
    """The part of ``subprocess.Popen`` that tests use, for a process that the forking process started."""

    def __init__(self, pid: int, status: socket.socket, out: IO[str], err: IO[str]) -> None:
        self.pid = pid
        self.stdout, self.stderr = out, err
        self.returncode: Optional[int] = None
        self._status = status  # receives the exit status
        self._read: Dict[IO[str], List[bytes]] = {out: [], err: []}

    def poll(self) -> Optional[int]:
        return self._exit_code(0)

    def wait(self, timeout: Optional[float] = None) -> int:
        code = self._exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("rank", timeout or 0)
        return code

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has exited, but its status has not arrived yet
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: Optional[float] = None) -> Tuple[str, str]:
        """Wait for the exit and return the unread output of both streams."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with selectors.DefaultSelector() as open_:
            for stream in self._read:
                if not stream.closed:
                    open_.register(stream, selectors.EVENT_READ)
            while open_.get_map():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise subprocess.TimeoutExpired("rank", timeout or 0)
                for key, _ in open_.select(left):
                    stream = key.fileobj  # type: ignore[assignment]
                    data = os.read(key.fd, 1 << 16)
                    self._read[stream].append(data)
                    if not data:
                        open_.unregister(stream)
                        stream.close()
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        out, err = (b"".join(parts).decode(errors="replace") for parts in self._read.values())
        return out, err

    def _exit_code(self, timeout: Optional[float]) -> Optional[int]:
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                status = self._status.recv(4)
            except (BlockingIOError, socket.timeout):
                return None
            assert status, _EXITED
            self._status.close()
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status, "little"))
        return self.returncode


def start(
    code: str, env: Dict[str, str], *, folder: Optional[Path] = None, modules: Sequence[str] = TORCH
) -> ForkedProcess:
    """Run ``python -c code`` with ``env`` in ``folder``, without the time to import the modules."""
    ours, theirs = socket.socketpair()
    out, their_out = os.pipe()
    err, their_err = os.pipe()
    request = json.dumps({"code": code, "env": env, "folder": str(folder or Path.cwd())}).encode()
    with theirs:
        socket.send_fds(_forker(tuple(modules)), [request], [their_out, their_err, theirs.fileno()])
    os.close(their_out)
    os.close(their_err)
    pid = int.from_bytes(ours.recv(4), "little")
    assert pid, _EXITED
    return ForkedProcess(pid, ours, os.fdopen(out), os.fdopen(err))


def is_early(env: Dict[str, str]) -> bool:
    """Whether ``env`` has a variable that only a new interpreter reads."""
    return any(name.startswith(_EARLY) and _ENV.get(name) != value for name, value in env.items())


@functools.lru_cache(maxsize=None)
def _forker(modules: Tuple[str, ...]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen([sys.executable, __file__, *modules], env=_ENV, stdin=theirs)

    def end() -> None:
        ours.close()
        process.wait(60)

    atexit.register(end)
    return ours


def _serve(control: socket.socket) -> Tuple[bytes, List[int]]:
    """Fork for each request. Returns only in the new process, with its request and descriptors."""
    running: Dict[int, Tuple[int, int]] = {}  # for the descriptor of a process: its ID, the descriptor for its status
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd != control.fileno():
                    number, status = running.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _send_number(status, os.waitpid(number, 0)[1])
                    os.close(status)
                    continue
                request, descriptors, _, _ = socket.recv_fds(control, _LARGEST, 3)
                if not request:
                    sys.exit()
                number = os.fork()
                if number == 0:
                    control.detach()
                    return request, descriptors
                _send_number(descriptors[2], number)
                for fd in descriptors[:2]:
                    os.close(fd)
                process = os.pidfd_open(number)
                running[process] = (number, descriptors[2])
                selector.register(process, selectors.EVENT_READ)


def _send_number(fd: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test no longer waits for it
        os.write(fd, number.to_bytes(4, "little"))


def _set_up(request: bytes, descriptors: List[int]) -> str:
    """Set up this process for the request and return the script."""
    options = json.loads(request)
    for standard, fd in zip((1, 2), descriptors):
        os.dup2(fd, standard)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # The descriptors of the forking process and of other processes.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(options["folder"])
    os.environ.clear()
    os.environ.update(options["env"])
    sys.argv, sys.path[0] = ["-c"], ""
    sys.modules["__main__"] = types.ModuleType("__main__")
    if "torch" in sys.modules:
        sys.modules["torch"].seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    return str(options["code"])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # garbage collection in a forked process then neither scans nor copies the shared objects
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a forked process would lack the other threads"
    exec(compile(_set_up(*_serve(socket.socket(fileno=0))), "<string>", "exec"), sys.modules["__main__"].__dict__)
