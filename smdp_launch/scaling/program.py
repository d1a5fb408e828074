"""Runs the model of cost, a program that comes with the engine. Nothing of the engine is imported."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem, SmdpError
from smdp_launch.scaling.question import Question

_NAME = "smdp_model"
_LOOK = 0.1  # seconds between two looks at what is done
_LONGEST_MESSAGE = 500

#: When each bucket of a question was done.
Answer = tuple[float, ...]
#: Gets the number of questions that have been answered, and of all.
Progress = Callable[[int, int], None]


class ProgramMissing(EnvironmentProblem):
    """The program is not here, or does not run."""


class ProgramDied(EnvironmentProblem):
    """It was ended by a signal, as where memory runs out."""


class QuestionRefused(SmdpError):
    """The program does not take a value of the question, or has no answer to it."""


class TookTooLong(EnvironmentProblem):
    """The answers were not there in time."""


def find_program() -> Path:
    """Where the engine's package has it.

    Raises:
        ProgramMissing: it is not there.
    """
    spec = importlib.util.find_spec("smdp_engine")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        path = Path(folder) / "bin" / _NAME
        if path.is_file():
            return path
    raise ProgramMissing("the engine is not installed" if not folders else "the installed engine has no smdp_model")


def default_costs(program: Path) -> dict[str, float]:
    """The costs of the model by name, with its defaults.

    Raises:
        ProgramMissing: the program does not run.
    """
    try:
        ran = subprocess.run(
            [str(program), "--costs"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=True
        )
        return {name: float(value) for name, value in (line.split() for line in ran.stdout.splitlines())}
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ProgramMissing(f"{program} does not run: {_reason(error)}") from error


def ask_all(
    program: Path, questions: Iterable[Question], progress: Progress = lambda *_: None, *, timeout: float
) -> dict[str, Answer]:
    """Every answer by the question's text, each asked once, as many at a time as there are processors.

    Args:
        timeout: seconds for all of them together. What still runs then, or when anything is raised here, is killed.

    Raises:
        QuestionRefused: the program does not take one, or has no answer.
        ProgramMissing: the program does not run.
        ProgramDied: it was ended by a signal.
        TookTooLong: the time is up.
    """
    different = {one.text(): one for one in questions}
    # The longest first: no processor has nothing to do at the end.
    texts = sorted(different, key=lambda text: -different[text].work)
    asker = _Asker(program)
    deadline = time.monotonic() + timeout
    pool = ThreadPoolExecutor(max_workers=max(1, min(len(texts), len(os.sched_getaffinity(0)))))
    try:
        pending = set(running := {pool.submit(asker.ask, text): text for text in texts})
        while pending:
            done, pending = wait(pending, timeout=_LOOK, return_when=FIRST_EXCEPTION)
            for one in done:
                one.result()
            progress(len(texts) - len(pending), len(texts))
            if pending and time.monotonic() >= deadline:
                largest = max(different[running[one]].hosts for one in pending)
                raise TookTooLong(f"the model was not done with {largest} hosts after {timeout:g} s")
        return {text: one.result() for one, text in running.items()}
    finally:
        asker.stop()
        pool.shutdown(cancel_futures=True)


@dataclass
class _Asker:
    """The programs that run; ``stop`` ends them, and none is started after it."""

    program: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: set[subprocess.Popen[str]] = field(default_factory=set)
    _stopped: bool = False

    def ask(self, text: str) -> Answer:
        process = self._start()
        if process is None:
            return ()
        try:
            out, err = process.communicate(text)
        finally:
            with self._lock:
                self._running.discard(process)
        return _answer(process.returncode, out, err)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for one in self._running:
                one.kill()

    def _start(self) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._stopped:
                return None
            try:
                process = subprocess.Popen(
                    [str(self.program)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                )
            except OSError as error:
                raise ProgramMissing(f"{self.program} does not run: {_reason(error)}") from error
            self._running.add(process)
            return process


def _answer(code: int, out: str, err: str) -> Answer:
    if code < 0:
        raise ProgramDied(f"{_NAME} was ended by signal {-code}, as where memory runs out: ask for fewer hosts")
    if code != 0:
        message = " ".join(err.split())[:_LONGEST_MESSAGE] or f"exit code {code}"
        raise QuestionRefused(message)
    try:
        return tuple(float(one) for one in json.loads(out)["bucket_done"])
    except (ValueError, KeyError, TypeError) as error:
        raise ProgramMissing(f"{_NAME} gave an answer that cannot be read") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
