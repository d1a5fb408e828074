"""The Python stacks of the workers and of the Python processes that they started, such as a DataLoader's workers.

Every Python process of a worker registers `faulthandler` for one signal when it starts (`worker_site`). The output goes
to an unnamed file that the process keeps open; this module finds it under /proc and reads what the signal adds to it.
The handler is native code, so a process also answers that never returns to Python. A process that has no such file, or
no handler for the signal, gets no signal.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from smdp_entrypoint.resources.system_files import UNREADABLE, SystemFiles

#: For the workers: the folder and the number of the signal, as FOLDER:NUMBER.
VARIABLE = "SMDP_STACKS"
# A real-time signal that no common library uses.
SIGNAL = signal.SIGRTMAX - 7
_PREFIX = ".smdp-stacks-"
_TIMEOUT_S = 3.0
_SETTLED_S = 0.2
_LONGEST = 1 << 18  # bytes of one process
_MOST_PROCESSES = 256
_THREAD = re.compile(r"(?:Current thread|Thread) 0x")
_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
# A loader's worker that waits for its next task.
_WAITS_FOR_TASK = re.compile(r"multiprocessing[/\\](queues|connection|synchronize)\.py$")
_IN_WAIT = re.compile(r"[/\\](selectors|threading)\.py$")
_OF_EXCHANGES = re.compile(r"torch[/\\]distributed[/\\]distributed_c10d\.py$")
# Above this frame are those of the process that forked this one.
_START_OF_FORKED = re.compile(r"multiprocessing[/\\]process\.py$")
_OF_LIBRARY = re.compile(r"[/\\](site-packages|dist-packages)[/\\]|[/\\]python3\.\d+[/\\]|<frozen ")


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    function: str

    @property
    def in_full(self) -> str:
        return f'  File "{self.file}", line {self.line}, in {self.function}'

    def __str__(self) -> str:
        return f"{self.function} ({Path(self.file).name}:{self.line})"


@dataclass(frozen=True)
class ProcessStack:
    """`rank` is that of the worker, or of the worker that started the process. `missing` says why there is no stack."""

    rank: int
    pid: int
    is_worker: bool
    text: str
    missing: str = ""

    @property
    def threads(self) -> list[list[Frame]]:
        """The frames of each thread, the innermost first; the main thread is the last one."""
        threads: list[list[Frame]] = []
        for line in self.text.splitlines():
            frame = _FRAME.match(line)
            if _THREAD.match(line):
                threads.append([])
            elif frame and threads:
                threads[-1].append(Frame(frame["file"], int(frame["line"]), frame["function"]))
        return threads

    @property
    def main_thread(self) -> list[Frame]:
        frames = next(iter(self.threads[-1:]), [])
        begun = [at for at, one in enumerate(frames) if _is_start(one)]
        return frames[: begun[0] + 1] if begun and not self.is_worker else frames

    @property
    def exchange(self) -> str:
        """The function of torch.distributed that the main thread has called, such as recv; "" if there is none."""
        called = [frame.function for frame in self.main_thread if _OF_EXCHANGES.search(frame.file)]
        return called[-1] if called else ""

    @property
    def lines(self) -> list[str]:
        """The frames of the main thread, and of each other thread that runs more than code of libraries."""
        if self.waits_for_task and not self.is_worker:
            return ["waits for its next task"]
        *others, _ = self.threads or [[]]
        shown = [frames for frames in others if not all(_OF_LIBRARY.search(frame.file) for frame in frames)]
        lines = [frame.in_full for frame in self.main_thread]
        for frames in shown:
            lines += ["another thread:", *(frame.in_full for frame in frames)]
        if len(others) > len(shown):
            lines.append(f"and {len(others) - len(shown)} threads with code of libraries only")
        return lines

    def place(self, code: Path) -> Frame | None:
        """The innermost frame in the job's own code, else the innermost one that is in no library."""
        frames = self.main_thread
        own = [frame for frame in frames if frame.file.startswith(f"{code}{os.sep}")]
        others = [frame for frame in frames if not _OF_LIBRARY.search(frame.file)]
        return next(iter([*own, *others, *frames]), None)

    @property
    def waits_for_task(self) -> bool:
        """Whether this process is a worker of a loader, or of a pool, that has nothing to do."""
        innermost = next((frame for frame in self.main_thread if not _IN_WAIT.search(frame.file)), None)
        return innermost is not None and bool(_WAITS_FOR_TASK.search(innermost.file))


class Stacks:
    """Creates the folder for the workers' files below `parent`, which the platform removes with the job, else in the
    folder for temporary files. Raises OSError if neither is possible. `close` removes it."""

    def __init__(self, parent: Path, files: SystemFiles | None = None) -> None:
        self._files = files or SystemFiles()
        try:
            self.folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        except OSError:  # a user other than root, or an image that cannot be written to
            self.folder = tempfile.mkdtemp(prefix=_PREFIX)

    @property
    def variable(self) -> str:
        return f"{self.folder}:{SIGNAL}"

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, workers: Mapping[int, int]) -> list[ProcessStack]:
        """The stacks of the workers, given by process ID with their ranks, and of their child processes. Takes up to
        three seconds."""
        asked, stacks = [], []
        for pid, root in list(_trees(self._files, workers).items())[:_MOST_PROCESSES]:
            one = self._ask(pid)
            if isinstance(one, _Asked):
                asked.append((one, root))
            elif pid == root:
                stacks.append(ProcessStack(workers[root], pid, True, "", one))
        texts = _collect([one for one, _ in asked])
        for (one, root), text in zip(asked, texts):
            missing = "" if text else "it did not answer the signal"
            stacks.append(ProcessStack(workers[root], one.pid, one.pid == root, text, missing))
        return sorted(stacks, key=lambda stack: (stack.rank, not stack.is_worker, stack.pid))

    def _ask(self, pid: int) -> _Asked | str:
        """Send the signal; else say why the process has no stack to show."""
        try:
            status = self._files.read(f"/proc/{pid}/status")
        except UNREADABLE:
            return "it has exited"
        state = _field(status, "State")
        if state.startswith(("T", "t")):
            return "a signal has stopped the process, or a debugger"
        file = self._file(pid)
        if file is None or not int(_field(status, "SigCgt") or "0", 16) >> (SIGNAL - 1) & 1:
            return f"it is not a Python process of this image, or has replaced its handler; state {state}"
        try:
            one = _Asked(pid, os.open(file, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            return f"its stack cannot be read: {error.strerror}"
        with contextlib.suppress(OSError):
            os.kill(pid, SIGNAL)
        return one

    def _file(self, pid: int) -> str | None:
        for name in self._files.names(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            with contextlib.suppress(OSError):
                if os.readlink(path) == f"{self.folder}/{pid} (deleted)":
                    return path
        return None


class _Asked:
    """A process that got the signal, and its file, of which all after `start` is the answer."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid, self.fd = pid, fd
        self.start = os.fstat(fd).st_size


def _is_start(frame: Frame) -> bool:
    return frame.function == "_bootstrap" and bool(_START_OF_FORKED.search(frame.file))


def _collect(asked: list[_Asked]) -> list[str]:
    """The answers, once they have stopped growing. Closes the files."""
    end, settled = time.monotonic() + _TIMEOUT_S, time.monotonic()
    sizes = [0 for _ in asked]
    while asked and time.monotonic() < end:
        now = [os.fstat(one.fd).st_size - one.start for one in asked]
        if now != sizes:
            sizes, settled = now, time.monotonic()
        if all(sizes) and time.monotonic() - settled > _SETTLED_S:
            break
        time.sleep(0.02)
    texts = []
    for one in asked:
        texts.append(os.pread(one.fd, _LONGEST, one.start).decode("utf-8", "replace"))
        os.close(one.fd)
    return texts


def _trees(files: SystemFiles, workers: Mapping[int, int]) -> dict[int, int]:
    """The workers and all processes below them, each with its worker."""
    parents = {}
    for name in files.names("/proc"):
        if name.isdecimal():
            with contextlib.suppress(*UNREADABLE):
                parents[int(name)] = int(files.read(f"/proc/{name}/stat").rpartition(")")[2].split()[1])
    trees = {pid: pid for pid in workers}
    waiting = list(workers)
    while waiting:
        parent = waiting.pop(0)
        for pid in sorted(pid for pid, above in parents.items() if above == parent and pid not in trees):
            trees[pid] = trees[parent]
            waiting.append(pid)
    return trees


def _field(status: str, name: str) -> str:
    return next((line.partition(":")[2].strip() for line in status.splitlines() if line.startswith(f"{name}:")), "")
