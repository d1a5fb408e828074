"""Runs tests of the suite as forked ranks, each test with a deadline. No rank outlives its test."""

import contextlib
import ctypes
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Dict, List, NoReturn, Optional

import suite

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# After a rank has failed, the others may still report their errors.
_GRACE_S = 3.0
_KILLED = -int(signal.SIGKILL)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h: the signal that a process gets when its parent dies
_C = ctypes.CDLL(None)


@dataclass
class Verdict:
    """``reason``: the suite's reason of a skipped test, the ranks' output of a failed test."""

    kind: str
    reason: str = ""
    seconds: float = 0.0


@dataclass
class Rank:
    pid: int
    pipe: Connection
    code: Optional[int] = None
    said: str = ""

    def reap(self, flags: int) -> None:
        """Read the rank's output and, once it has exited, its exit code."""
        if self.code is not None:
            return
        pid, status = os.waitpid(self.pid, flags)
        with contextlib.suppress(EOFError, OSError):
            while self.pipe.poll():
                self.said += str(self.pipe.recv())
        if pid:
            self.code = os.waitstatus_to_exitcode(status)
            self.pipe.close()


@dataclass
class Running:
    """A running test."""

    name: str
    deadline_s: float
    folder: Path
    began: float = field(default_factory=time.monotonic)
    ranks: List[Rank] = field(default_factory=list)
    first_error: str = ""
    cut: float = float("inf")

    def poll(self) -> Optional[Verdict]:
        """The verdict once every rank has exited. Ranks past the deadline are killed."""
        for number, rank in enumerate(self.ranks):
            rank.reap(os.WNOHANG)
            if rank.code == suite.ERROR_EXIT_CODE and not self.first_error:
                self.first_error = f"rank {number}: {rank.said}"
                self.cut = time.monotonic() + _GRACE_S
        if time.monotonic() > min(self.began + self.deadline_s, self.cut):
            self.end()
        if any(rank.code is None for rank in self.ranks):
            return None
        verdict = self._judge()
        shutil.rmtree(self.folder, ignore_errors=True)
        return verdict

    def end(self) -> None:
        for rank in self.ranks:
            if rank.code is None:
                os.kill(rank.pid, signal.SIGKILL)
                rank.reap(0)

    def _judge(self) -> Verdict:
        codes = [rank.code for rank in self.ranks]
        seconds = time.monotonic() - self.began
        if suite.ERROR_EXIT_CODE in codes:
            others = [rank.said for rank in self.ranks if rank.said and rank.said not in self.first_error]
            return Verdict(FAILED, "\n".join([self.first_error, *others]), seconds)
        if self.name in suite.ANY_END and _KILLED not in codes:
            return Verdict(PASSED, "", seconds)
        if codes[0] in suite.SKIPS:
            return Verdict(SKIPPED, suite.SKIPS[codes[0]], seconds)
        if any(codes):
            return Verdict(FAILED, f"exit codes {codes} after {seconds:.1f} s\n{self._output()}", seconds)
        return Verdict(PASSED, "", seconds)

    def _output(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.folder.glob("rank-*.txt")))


@dataclass(frozen=True)
class Runner:
    """Runs tests for one backend with ``size`` ranks each, ``lanes`` tests at a time."""

    backend: str
    size: int
    lanes: int
    deadline_s: float

    def run(self, names: List[str]) -> Dict[str, Verdict]:
        """A test that fails beside other tests is repeated alone: some have deadlines of a tenth of a second."""
        verdicts = self._run(names, self.lanes)
        if self.lanes > 1:
            verdicts.update(self._run([name for name in names if verdicts[name].kind == FAILED], 1))
        return verdicts

    def _run(self, names: List[str], lanes: int) -> Dict[str, Verdict]:
        waiting, verdicts = list(names), {}
        running: List[Running] = []
        try:
            while waiting or running:
                while waiting and len(running) < lanes:
                    running.append(self._start(waiting.pop(0)))
                time.sleep(0.02)
                ended = [(test, verdict) for test in running for verdict in [test.poll()] if verdict]
                for test, verdict in ended:
                    verdicts[test.name] = verdict
                    running.remove(test)
        finally:
            for test in running:
                test.end()
        return verdicts

    def _start(self, name: str) -> Running:
        running = Running(name, self.deadline_s, Path(tempfile.mkdtemp(prefix="conformance-")))
        for part in ("barrier", "test_dir", "init_dir"):
            (running.folder / part).mkdir()
        for rank in range(self.size):
            running.ranks.append(self._fork(running, rank))
        return running

    def _fork(self, running: Running, rank: int) -> Rank:
        ours, theirs = multiprocessing.Pipe()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._live(running, rank, theirs)
        theirs.close()
        return Rank(pid, ours)

    def _live(self, running: Running, rank: int, pipe: Connection) -> NoReturn:
        code = suite.ERROR_EXIT_CODE
        try:
            os.setpgid(0, 0)  # only the parent handles Ctrl-C
            _C.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            output = os.open(running.folder / f"rank-{rank}.txt", os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            suite.become(self.backend, running.folder, rank, self.size)
            code = suite.run_rank(running.name, rank, running.folder, pipe)
        except BaseException:
            pipe.send(traceback.format_exc())
        finally:
            sys.stderr.flush()
            os._exit(code)


def run(names: List[str], backend: str, *, lanes: int, deadline_s: float) -> Dict[str, Verdict]:
    """Run every test with four ranks, or with eight if the suite reports that four are too few."""
    verdicts = Runner(backend, suite.USUAL_SIZE, lanes, deadline_s).run(names)
    large = [name for name in names if verdicts[name].reason == suite.TOO_SMALL]
    verdicts.update(Runner(backend, suite.LARGE_SIZE, lanes, deadline_s).run(large))
    return verdicts
