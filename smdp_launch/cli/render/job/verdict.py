"""What holds a run back, for the views that show it beside other numbers."""

from __future__ import annotations

from smdp_launch.diagnosis.advice import advice
from smdp_launch.diagnosis.texts import figures, hedged, sentence
from smdp_launch.diagnosis.verdict import UNKNOWN, diagnose
from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.units import titled


def verdict_text(metrics: RunMetrics) -> str:
    """The verdict's sentence; empty if nothing but computing takes the time, or there is not enough data."""
    verdict = diagnose(metrics)
    return "" if verdict.cause in (UNKNOWN, "computing") else hedged(verdict)


def verdict_rows(metrics: RunMetrics) -> list[tuple[str, str]]:
    """The verdict with its figures and what to do first; what is missing without enough data."""
    verdict = diagnose(metrics)
    rows = [("verdict", sentence(verdict)), *titled("missing", list(verdict.missing))]
    return rows if verdict.cause == UNKNOWN else [*rows, *figures(verdict), *titled("do first", advice(verdict))]
