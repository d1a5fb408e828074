"""Processes that need not import what they use: a Python that has done so becomes them, one fork for each.

The import takes longer than most tests; of a rank it is torch's. It ends before any script begins, with one thread and,
for ranks, nothing of ours loaded; from there the process is like any other, to the end of its interpreter. It draws
seeds of its own; what the processes share is that of the hashes of strings.
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

TORCH = ("torch", "torch.distributed", "torch._dynamo")  # the last is what the first optimizer imports
_LARGEST = 1 << 17  # bytes of a request
_ENV = {**os.environ, "OMP_NUM_THREADS": "1"}  # of the Python that forks
# What the loader, an allocator, the interpreter and torch ask for before a script begins.
_EARLY = ("LANG", "LC_", "LD_", "MALLOC_", "GLIBC_", "OMP_", "MKL_", "PYTHON", "TORCH_", "TZ")

_ENDED = "the process that forks has ended"

is_possible = sys.version_info >= (3, 9)  # pidfd_open, recv_fds


class Rank:
    """The part of ``subprocess.Popen`` that tests use, of a process that another one began."""

    def __init__(self, pid: int, told: socket.socket, out: IO[str], err: IO[str]) -> None:
        self.pid = pid
        self.stdout, self.stderr = out, err
        self.returncode: Optional[int] = None
        self._told = told  # gives its end
        self._read: Dict[IO[str], List[bytes]] = {out: [], err: []}

    def poll(self) -> Optional[int]:
        return self._ended(0)

    def wait(self, timeout: Optional[float] = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("rank", timeout or 0)
        return code

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, which is not reported yet
                os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: Optional[float] = None) -> Tuple[str, str]:
        """What came on both streams that nobody has read; waits for its end."""
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

    def _ended(self, timeout: Optional[float]) -> Optional[int]:
        if self.returncode is None:
            self._told.settimeout(timeout)
            try:
                told = self._told.recv(4)
            except (BlockingIOError, socket.timeout):
                return None
            assert told, _ENDED
            self._told.close()
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(told, "little"))
        return self.returncode


def start(code: str, env: Dict[str, str], *, folder: Optional[Path] = None, modules: Sequence[str] = TORCH) -> Rank:
    """As ``python -c code`` with ``env`` in ``folder``, without the time that importing the modules takes."""
    ours, theirs = socket.socketpair()
    out, their_out = os.pipe()
    err, their_err = os.pipe()
    request = json.dumps({"code": code, "env": env, "folder": str(folder or Path.cwd())}).encode()
    with theirs:
        socket.send_fds(_forker(tuple(modules)), [request], [their_out, their_err, theirs.fileno()])
    os.close(their_out)
    os.close(their_err)
    pid = int.from_bytes(ours.recv(4), "little")
    assert pid, _ENDED
    return Rank(pid, ours, os.fdopen(out), os.fdopen(err))


def is_early(env: Dict[str, str]) -> bool:
    """Whether it says something that only a new Python hears."""
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
    """Forks for each request; returns it, with its descriptors, in the rank. Does not return in this process."""
    running: Dict[int, Tuple[int, int]] = {}  # descriptor of a rank: its number, where its end is told
    with selectors.DefaultSelector() as news:
        news.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in news.select():
                if key.fd != control.fileno():
                    number, told = running.pop(key.fd)
                    news.unregister(key.fd)
                    os.close(key.fd)
                    _tell(told, os.waitpid(number, 0)[1])
                    os.close(told)
                    continue
                request, given, _, _ = socket.recv_fds(control, _LARGEST, 3)
                if not request:
                    sys.exit()
                number = os.fork()
                if number == 0:
                    control.detach()
                    return request, given
                _tell(given[2], number)
                for fd in given[:2]:
                    os.close(fd)
                watched = os.pidfd_open(number)
                running[watched] = (number, given[2])
                news.register(watched, selectors.EVENT_READ)


def _tell(fd: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(fd, number.to_bytes(4, "little"))


def _become(request: bytes, given: List[int]) -> str:
    """Make this process the rank; its script."""
    wanted = json.loads(request)
    for standard, fd in zip((1, 2), given):
        os.dup2(fd, standard)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # What belongs to the Python that forks and to its other ranks.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["env"])
    sys.argv, sys.path[0] = ["-c"], ""
    sys.modules["__main__"] = types.ModuleType("__main__")
    if "torch" in sys.modules:
        sys.modules["torch"].seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    return str(wanted["code"])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # what every process shares is neither copied nor looked through by a collection in one of them
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread would be missing in the ranks"
    exec(compile(_become(*_serve(socket.socket(fileno=0))), "<string>", "exec"), sys.modules["__main__"].__dict__)
