"""Imports torch, TensorFlow and the engine in processes of their own, with a deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TIMEOUT = 120.0  # seconds; the first import of a large framework from a slow disk takes up to a minute
_NAMES = {"torch": "torch", "tensorflow": "TensorFlow", "engine": "smdp-engine"}


@dataclass(frozen=True)
class Step:
    """The result of one step of the probe.

    Args:
        error: None if the step succeeded.
        values: its results, such as the version of torch.
    """

    name: str
    error: str | None
    values: Mapping[str, Any]


def probe(steps: Sequence[str], *, timeout: float = _TIMEOUT) -> dict[str, Step]:
    """Run the steps of the program `probe` one after the other. Steps after a failed one are omitted.

    With the step ``sum``, two processes run all steps, and the result is that of the first one that failed.
    """
    deadline = time.monotonic() + timeout
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="smdp-doctor-"))
        ranks = 2 if "sum" in steps else 1
        logs = [Path(folder) / f"rank-{rank}" for rank in range(ranks)]
        processes = [stack.enter_context(_started(steps, rank, folder, logs[rank])) for rank in range(ranks)]
        results = [_results(one, log, deadline, timeout) for one, log in zip(processes, logs, strict=True)]
    return min(results, key=lambda one: (not _has_error(one), len(one)))


def _has_error(results: Mapping[str, Step]) -> bool:
    return any(one.error is not None for one in results.values())


@contextmanager
def _started(steps: Sequence[str], rank: int, folder: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    """A process of the probe, whose process group is killed when the context ends."""
    environment = {
        **os.environ,
        "PYTHONPATH": _absolute(os.environ.get("PYTHONPATH", "")),
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": str(rank),
        "SMDP_PROBE_FOLDER": folder,
        "OMP_NUM_THREADS": "1",
    }
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "smdp_launch.doctor.probe", *steps],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=Path(sys.prefix).anchor,  # a file torch.py in the current folder is not torch
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            _kill(process)
        process.communicate()


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the process, and on POSIX the processes that it started."""
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _absolute(paths: str) -> str:
    return os.pathsep.join(os.path.abspath(one) for one in paths.split(os.pathsep) if one)  # noqa: PTH100


def _results(process: subprocess.Popen[str], log: Path, deadline: float, timeout: float) -> dict[str, Step]:
    try:
        output = process.communicate(timeout=max(0.0, deadline - time.monotonic()))[0]
        ending = _ending(process.returncode, log)
    except subprocess.TimeoutExpired:
        _kill(process)
        output = process.communicate()[0]
        ending = f"it did not finish within {timeout:g} s"
    results: dict[str, Step] = {}
    for line in output.splitlines():
        record = json.loads(line)
        name, is_done = record.pop("step"), record.pop("done", False)
        # A step that has begun and has no result crashed the process, or hangs.
        results[name] = Step(name, record.pop("error", None) if is_done else ending, record)
    return results or {"start": Step("start", ending, {})}


def _ending(code: int, log: Path) -> str:
    """How a process ended in the middle of a step."""
    if code < 0:
        try:
            return f"it crashed with {signal.Signals(-code).name}"
        except ValueError:
            return f"it crashed with signal {-code}"
    lines = [one.strip() for one in log.read_text(encoding="utf-8", errors="replace").splitlines() if one.strip()]
    return f"it exited with code {code}{': ' + lines[-1][:300] if lines else ''}"


def title(step: str) -> str:
    return _NAMES.get(step, step)
