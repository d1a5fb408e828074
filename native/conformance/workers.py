"""Runs one test of the suite as forked ranks, with a deadline. No rank outlives its test."""

import contextlib
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
from typing import Dict, List, Optional

import suite

# After a rank has failed the others may still say what they met.
GRACE_S = 3.0


@dataclass
class Verdict:
    """``kind``: passed, failed or skipped. ``reason``: the suite's, or what the ranks said."""

    kind: str
    reason: str = ""
    seconds: float = 0.0


@dataclass
class Rank:
    pid: int
    pipe: Connection
    code: Optional[int] = None
    ended: float = 0.0
    said: str = ""


@dataclass
class Running:
    """A test under way."""

    name: str
    backend: str
    deadline_s: float
    folder: Path
    started: float = field(default_factory=time.monotonic)
    ranks: List[Rank] = field(default_factory=list)
    cut_at: Optional[float] = None

    def poll(self) -> Optional[Verdict]:
        """The verdict, once every rank has ended; a test past its deadline is ended here."""
        for rank in self.ranks:
            self._reap(rank)
        now = time.monotonic()
        if any(rank.code == suite.ERROR_EXIT_CODE for rank in self.ranks) and self.cut_at is None:
            self.cut_at = now + GRACE_S
        if now > min(self.started + self.deadline_s, self.cut_at or now + 1):
            self._end()
        if any(rank.code is None for rank in self.ranks):
            return None
        verdict = self._judge()
        verdict.seconds = now - self.started
        shutil.rmtree(self.folder, ignore_errors=True)
        return verdict

    def _reap(self, rank: Rank) -> None:
        if rank.code is not None:
            return
        _receive(rank)
        pid, status = os.waitpid(rank.pid, os.WNOHANG)
        if pid:
            _receive(rank)
            rank.code = os.waitstatus_to_exitcode(status)
            rank.ended = time.monotonic()
            rank.pipe.close()

    def _end(self) -> None:
        for rank in self.ranks:
            if rank.code is None:
                os.kill(rank.pid, signal.SIGKILL)
                _, _status = os.waitpid(rank.pid, 0)
                rank.code, rank.ended = -signal.SIGKILL, time.monotonic()
                rank.pipe.close()

    def _judge(self) -> Verdict:
        codes = [rank.code for rank in self.ranks]
        if suite.ERROR_EXIT_CODE in codes:
            return Verdict("failed", self._what_they_said())
        if self.name in suite.ANY_END:
            return Verdict("passed")
        first = codes[0] or 0
        if first in suite.SKIPS:
            return Verdict("skipped", suite.SKIPS[first])
        if any(codes):
            overdue = time.monotonic() > self.started + self.deadline_s
            why = f"not ended after {self.deadline_s:g} s" if overdue else "ended badly"
            return Verdict("failed", f"{why}: exit codes {codes}\n{self._output()}")
        return Verdict("passed")

    def _what_they_said(self) -> str:
        said = []
        for number, rank in sorted(enumerate(self.ranks), key=lambda each: each[1].ended):
            if rank.said:
                said.append(f"rank {number}:\n{rank.said}")
        return "\n".join(said)

    def _output(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self.folder.glob("rank-*.txt")))


def start(name: str, backend: str, deadline_s: float) -> Running:
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    for part in ("barrier", "test_dir", "init_dir"):
        (folder / part).mkdir()
    running = Running(name, backend, deadline_s, folder)
    sys.stdout.flush()
    sys.stderr.flush()
    for rank in range(suite.WORLD_SIZE):
        ours, theirs = multiprocessing.Pipe()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _be(running, rank, theirs)
        theirs.close()
        running.ranks.append(Rank(pid, ours))
    return running


def _be(running: Running, rank: int, pipe: Connection) -> None:
    """The forked rank's life. Never returns."""
    code = 1
    try:
        os.setpgid(0, 0)  # a Ctrl-C is the parent's to answer
        output = os.open(running.folder / f"rank-{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        suite.become(running.backend, running.folder, rank)
        code = suite.run_rank(running.name, rank, str(running.folder / "store"), pipe)
    except BaseException:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            pipe.send(traceback.format_exc())
        code = suite.ERROR_EXIT_CODE
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _receive(rank: Rank) -> None:
    with contextlib.suppress(EOFError, OSError):
        while rank.pipe.poll():
            rank.said += str(rank.pipe.recv())


def run(names: List[str], backend: str, *, lanes: int, deadline_s: float) -> Dict[str, Verdict]:
    """Run the tests, ``lanes`` at a time. One that fails among others gets a second chance by itself."""
    verdicts = _run_in_lanes(names, backend, lanes, deadline_s)
    failed = [name for name, verdict in verdicts.items() if verdict.kind == "failed"]
    if lanes > 1:
        verdicts.update(_run_in_lanes(failed, backend, 1, deadline_s))
    return verdicts


def _run_in_lanes(names: List[str], backend: str, lanes: int, deadline_s: float) -> Dict[str, Verdict]:
    waiting, running, verdicts = list(names), [], {}
    try:
        while waiting or running:
            while waiting and len(running) < lanes:
                running.append(start(waiting.pop(0), backend, deadline_s))
            time.sleep(0.02)
            for test in list(running):
                verdict = test.poll()
                if verdict:
                    verdicts[test.name] = verdict
                    running.remove(test)
    finally:
        for test in running:
            test._end()
    return verdicts
