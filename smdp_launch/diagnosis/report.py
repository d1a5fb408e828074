"""A verdict as JSON (docs/schemas/diagnose.schema.json)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from smdp_launch.diagnosis.advice import advice
from smdp_launch.diagnosis.loading import Loading
from smdp_launch.diagnosis.texts import figures, sentence
from smdp_launch.diagnosis.verdict import Verdict, WorkerVerdict

#: Version of ``diagnose --json``; raised when a field changes its meaning or is removed.
DIAGNOSIS_VERSION = 1

#: Exit codes of ``diagnose --exit-code`` (docs/reference/exit-codes.md). A number never changes its meaning.
EXIT_CODES = {
    "computing": 0,
    "source": 20,
    "decoding": 21,
    "workers": 22,
    "exchanges": 23,
    "slow_worker": 24,
    "slow_host": 25,
    "checkpoints": 26,
    "logging": 27,
    "evaluation": 28,
    "unknown": 29,
    "hang": 30,
}


def diagnosis_json(verdict: Verdict, job: str | None) -> dict[str, Any]:
    """``job``: its name; None for a saved log."""
    known = verdict.is_of_speed
    return {
        "diagnosis": DIAGNOSIS_VERSION,
        "job": job,
        "cause": verdict.cause,
        "sentence": sentence(verdict),
        "sure": verdict.sure,
        "share": verdict.share if known else None,
        "seconds_per_step": verdict.seconds if known else None,
        "gain": verdict.gain if known else None,
        "ranks": list(verdict.ranks),
        "host": verdict.host,
        "phase": verdict.spends,
        "step_seconds": verdict.step_s,
        "steps": verdict.steps,
        "intervals": verdict.windows,
        "seconds_read": verdict.seconds_read,
        "warm_up_seconds": verdict.warm_up,
        "bytes_per_second": verdict.bytes_s,
        "shares": dict(verdict.shares),
        "figures": [{"name": name, "value": value} for name, value in figures(verdict)],
        "advice": advice(verdict),
        "missing": list(verdict.missing),
        "hang": verdict.hang.to_json() if verdict.hang is not None else None,
        "workers": [_worker_json(one) for one in verdict.workers],
    }


def _worker_json(worker: WorkerVerdict) -> dict[str, Any]:
    return {
        "rank": worker.rank,
        "host": worker.host,
        "cause": worker.cause,
        "step_seconds": worker.step_s,
        "own_seconds": worker.own_s,
        "shares": dict(worker.shares),
        "phases": dict(worker.phases),
        "loading": _loading_json(worker.loading),
    }


def _loading_json(load: Loading) -> dict[str, Any] | None:
    if load.batch_s is None:
        return None
    return {name: value for name, value in asdict(load).items() if name != "clear"}
