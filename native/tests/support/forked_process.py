"""Starts Python processes by forking one that has imported their modules, such as torch.

The imports take longer than most tests. The forking process has one thread and, for ranks, has loaded nothing of this
project. A forked process behaves like a new interpreter and has its own random seeds; only the seed of string hashes is
shared.

``Address`` starts a forking process that other processes find too. It starts programs as ``subprocess.Popen`` does.
"""

import atexit
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import json
import os
import resource
import secrets
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

# Room for the command and the environment of a forked program, which /proc shows in place of the forking process's.
_ROOM = 1 << 13  # bytes
_ROOM_VARIABLE = "SMDP_TEST_ROOM"
# Of /proc/self/status: what a process inherits from its parent, and a forked program from the forking process.
_INHERITED = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "user", "uts")

_EXITED = "the forking process has exited"

is_possible = sys.version_info >= (3, 9)  # pidfd_open, recv_fds


class ForkedProcess:
    """The part of ``subprocess.Popen`` that tests use, for a process that the forking process started."""

    def __init__(
        self, pid: int, status: socket.socket, out: Optional[IO[str]] = None, err: Optional[IO[str]] = None
    ) -> None:
        self.pid = pid
        self.stdout, self.stderr = out, err
        self.returncode: Optional[int] = None
        self._status = status  # receives the exit status
        self._read: Dict[IO[str], List[bytes]] = {one: [] for one in (out, err) if one is not None}

    def __del__(self) -> None:
        self._status.close()  # a process may be left running on purpose

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


class Address:
    """Where a forking process for programs listens. Processes of the same user with the same namespaces find it by its
    name, also without ``listen``."""

    def __init__(self, name: str = "") -> None:
        self.name = name or f"smdp-tests-{os.getpid()}-{secrets.token_hex(8)}"

    def listen(self, modules: Sequence[str], variable: str) -> None:
        """Start the forking process, which imports the modules and finds this name in the variable. It ends with this
        process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{self.name}")
            listener.listen(64)
            process = subprocess.Popen(
                [sys.executable, __file__, *modules, f"--listener={listener.fileno()}", "-" * _ROOM],
                env={**_ENV, variable: self.name, _ROOM_VARIABLE: "-" * _ROOM},
                stdin=theirs,
                pass_fds=(listener.fileno(),),
            )
        _end_at_exit(ours, process)

    def start(
        self, command: Sequence[str], code: str, env: Dict[str, str], output: int, kept: Sequence[int] = ()
    ) -> Optional[ForkedProcess]:
        """Run the code as ``command`` in / and in a session of its own, with ``output`` and the descriptors ``kept``,
        by the same numbers.

        None where no forking process listens, or where a new interpreter would differ from a forked one.
        """
        request = {"code": code, "env": env, "folder": "/", "command": list(command), "inherited": _inherited()}
        request["kept"] = list(kept)
        request["limits"] = [(one, resource.getrlimit(one)) for one in _limits()]
        ours, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
            try:
                control.connect(f"\0{self.name}")
            except OSError:
                ours.close()
                return None
            socket.send_fds(control, [json.dumps(request).encode()], [output, output, theirs.fileno(), *kept])
            theirs.close()
            pid = int.from_bytes(ours.recv(4), "little")
        if pid:
            return ForkedProcess(pid, ours)
        ours.close()
        return None


def _inherited() -> List[str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = [line for line in lines if line.startswith((*_INHERITED, "Umask", "SigIgn"))]
    return found + [os.readlink(f"/proc/self/ns/{one}") for one in _NAMESPACES] + [os.readlink("/proc/self/root")]


def _limits() -> List[int]:
    return sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})


def is_early(env: Dict[str, str]) -> bool:
    """Whether ``env`` has a variable that only a new interpreter reads."""
    return any(name.startswith(_EARLY) and _ENV.get(name) != value for name, value in env.items())


@functools.lru_cache(maxsize=None)
def _forker(modules: Tuple[str, ...]) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen([sys.executable, __file__, *modules], env=_ENV, stdin=theirs)
    _end_at_exit(ours, process)
    return ours


def _end_at_exit(control: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    def end() -> None:
        control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a process that it forked for others still runs
            process.wait(60)

    atexit.register(end)


class _Forker:
    """Forks for each request. Once the process that started it has ended, it stays for the processes that it forked for
    others, which wait for their exit status."""

    def __init__(self, control: socket.socket, listener: Optional[socket.socket]) -> None:
        self._control, self._listener = control, listener
        # For the descriptor of a process: its ID, the descriptor for its status.
        self._running: Dict[int, Tuple[int, int]] = {}
        self._selector = selectors.DefaultSelector()
        for one in (control, listener):
            if one is not None:
                self._selector.register(one, selectors.EVENT_READ)

    def serve(self) -> Tuple[bytes, List[int]]:
        """Returns only in a new process, with its request and descriptors."""
        while True:
            for key, _ in self._selector.select():
                if key.fd in self._running:
                    self._report_exit(key.fd)
                    continue
                request, descriptors = self._receive(key.fd)
                if request and self._fork(descriptors):
                    return request, descriptors
            if self._control.fileno() < 0 and not (self._listener and self._running):
                sys.exit()

    def _receive(self, fd: int) -> Tuple[bytes, List[int]]:
        if self._listener is not None and fd == self._listener.fileno():
            return _accepted(self._listener)
        request, descriptors = _read(self._control)
        if not request:
            self._selector.unregister(self._control)
            self._control.close()
        return request, descriptors

    def _fork(self, descriptors: List[int]) -> bool:
        """Whether this is the new process."""
        number = os.fork()
        if number == 0:
            self._selector.close()
            for one in (self._control, self._listener):
                if one is not None:
                    one.detach()  # `_set_up` closes all descriptors
            return True
        for fd in (*descriptors[:2], *descriptors[3:]):
            os.close(fd)
        _send_number(descriptors[2], number)
        process = os.pidfd_open(number)
        self._running[process] = (number, descriptors[2])
        self._selector.register(process, selectors.EVENT_READ)
        return False

    def _report_exit(self, process: int) -> None:
        number, status = self._running.pop(process)
        self._selector.unregister(process)
        os.close(process)
        _send_number(status, os.waitpid(number, 0)[1])
        os.close(status)


def _read(control: socket.socket) -> Tuple[bytes, List[int]]:
    request, descriptors, _, _ = socket.recv_fds(control, _LARGEST, 8)
    return request, descriptors


def _accepted(listener: socket.socket) -> Tuple[bytes, List[int]]:
    """The request of a process of the same user, which sends it at once. A refused one finds its socket closed."""
    control, _ = listener.accept()
    with control:
        control.settimeout(10)
        credentials = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if int.from_bytes(credentials[4:8], sys.byteorder) != os.getuid():
            return b"", []
        try:
            request, descriptors = _read(control)
        except OSError:
            return b"", []
    if request and _is_alike(request):
        return request, descriptors
    for fd in descriptors:
        os.close(fd)
    return b"", []


def _is_alike(request: bytes) -> bool:
    """Whether a forked process inherits what a new interpreter would inherit from the one that asks for it."""
    options = json.loads(request)
    return bool(options["inherited"] == _inherited()) and not is_early(options["env"])


def _send_number(fd: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the test no longer waits for it
        os.write(fd, number.to_bytes(4, "little"))


def _set_up(request: bytes, descriptors: List[int]) -> str:
    """Set up this process for the request and return the script."""
    options = json.loads(request)
    for standard, fd in zip((1, 2), descriptors):
        os.dup2(fd, standard)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    numbers = options.get("kept", [])
    # Above all numbers: one of them may be that of another descriptor.
    received = [fcntl.fcntl(fd, fcntl.F_DUPFD, max(numbers) + 1) for fd in descriptors[3:]]
    for fd, number in zip(received, numbers):
        os.dup2(fd, number)
    # The descriptors of the forking process and of other processes.
    first = 3
    for kept in sorted(numbers):
        os.closerange(first, kept)
        first = kept + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))
    os.chdir(options["folder"])
    os.environ.clear()
    os.environ.update(options["env"])
    if "command" in options:
        os.setsid()
        for one, limit in options["limits"]:
            resource.setrlimit(one, limit)
        _show(options["command"], options["env"])
    sys.argv, sys.path[0] = ["-c"], ""
    sys.modules["__main__"] = types.ModuleType("__main__")
    if "torch" in sys.modules:
        sys.modules["torch"].seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    return str(options["code"])


def _show(command: Sequence[str], env: Dict[str, str]) -> None:
    """Have /proc show the command and the environment: tests and the product look for processes by them.

    ``os.environ.clear`` has moved the environment in use to other memory.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arguments, variables = map(int, fields[45:47]), map(int, fields[47:49])
    for (begin, end), texts in ((arguments, command), (variables, [f"{name}={env[name]}" for name in env])):
        size = end - begin
        shown = b"".join(os.fsencode(one) + b"\0" for one in texts)
        assert len(shown) < size, f"{_ROOM} bytes are too few for {shown!r}"
        ctypes.memmove(begin, shown.ljust(size, b"\0"), size)


def _listener() -> Optional[socket.socket]:
    numbers = [one.partition("=")[2] for one in sys.argv if one.startswith("--listener=")]
    return socket.socket(fileno=int(numbers[0])) if numbers else None


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if not name.startswith("-"):
            importlib.import_module(name)
    gc.freeze()  # garbage collection in a forked process then neither scans nor copies the shared objects
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a forked process would lack the other threads"
    started = _set_up(*_Forker(socket.socket(fileno=0), _listener()).serve())
    exec(compile(started, "<string>", "exec"), sys.modules["__main__"].__dict__)
