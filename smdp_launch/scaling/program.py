"""Runs the cost model, a program in the engine's package. Imports no code of the engine."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from smdp_launch.errors import EnvironmentProblem, SmdpError
from smdp_launch.scaling.question import Question
from smdp_launch.systems import usable_processors

_NAME = "smdp_model"
_POLL_INTERVAL = 0.1  # seconds
_LONGEST_MESSAGE = 500

#: The seconds at which each bucket of a question is done.
Answer = tuple[float, ...]
#: Receives the number of answered questions, and the number of all questions.
Progress = Callable[[int, int], None]


class ProgramMissing(EnvironmentProblem):
    """The program is not installed, or does not run."""


class ProgramDied(EnvironmentProblem):
    """A signal ended the program, for example because memory ran out."""


class QuestionRefused(SmdpError):
    """The program does not accept a value of the question, or has no answer to it."""


class ModelTimeout(EnvironmentProblem):
    """The program did not answer all questions in time."""


def find_program() -> Path:
    """The path of the program in the engine's package.

    Raises:
        ProgramMissing: it is not installed.
    """
    spec = importlib.util.find_spec("smdp_engine")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        path = Path(folder) / "bin" / _NAME
        if path.is_file():
            return path
    raise ProgramMissing("the engine is not installed" if not folders else "the installed engine has no smdp_model")


def default_costs(program: Path) -> dict[str, float]:
    """The default costs of the model, by name.

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
    """Run the program for each different question, one per processor at a time, and return the answers by text.

    Args:
        timeout: seconds for all questions together. Programs that still run then, or after an error, are killed.

    Raises:
        QuestionRefused: the program refuses a question, or has no answer.
        ProgramMissing: the program does not run.
        ProgramDied: a signal ended the program.
        ModelTimeout: the timeout expired.
    """
    different = {one.text(): one for one in questions}
    # The longest first, so that no processor is idle at the end.
    texts = sorted(different, key=lambda text: -different[text].work)
    asker = _Asker(program)
    deadline = time.monotonic() + timeout
    pool = ThreadPoolExecutor(max_workers=max(1, min(len(texts), usable_processors())))
    try:
        pending = set(running := {pool.submit(asker.ask, text): text for text in texts})
        while pending:
            done, pending = wait(pending, timeout=_POLL_INTERVAL, return_when=FIRST_EXCEPTION)
            for one in done:
                one.result()
            progress(len(texts) - len(pending), len(texts))
            if pending and time.monotonic() >= deadline:
                largest = max(different[running[one]].hosts for one in pending)
                raise ModelTimeout(f"the model did not finish {largest} hosts within {timeout:g} s")
        return {text: one.result() for one, text in running.items()}
    finally:
        asker.stop()
        pool.shutdown(cancel_futures=True)


@dataclass
class _Asker:
    """Runs programs; ``stop`` kills them and prevents new ones."""

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
        raise ProgramDied(f"signal {-code} ended {_NAME}, possibly because memory ran out: use fewer hosts")
    if code != 0:
        message = " ".join(err.split())[:_LONGEST_MESSAGE] or f"exit code {code}"
        raise QuestionRefused(message)
    try:
        return tuple(float(one) for one in json.loads(out)["bucket_done"])
    except (ValueError, KeyError, TypeError) as error:
        raise ProgramMissing(f"the answer of {_NAME} cannot be read") from error


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
