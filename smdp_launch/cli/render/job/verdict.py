"""What holds a run back, in one sentence."""

from __future__ import annotations

from smdp_launch.run_metrics.run import RunMetrics


def verdict_text(metrics: RunMetrics) -> str:
    """The verdict's sentence; empty if nothing but computing takes the time, or there is not enough data."""
    return ""


def verdict_rows(metrics: RunMetrics) -> list[tuple[str, str]]:
    """The verdict with its figures; empty without data."""
    return []
