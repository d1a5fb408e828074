"""Where the time of all workers went, in the same part of a run as the verdict reads: without warm-up and end."""

from __future__ import annotations

from smdp_launch.diagnosis.period import period
from smdp_launch.run_metrics.run import PHASES, RunMetrics
from smdp_launch.run_metrics.summary import shares_of, shares_text, time_shares


def steady_shares(metrics: RunMetrics) -> dict[str, float]:
    """By group (``run_metrics.summary.GROUPS``); they sum to 1. Of the whole run if no worker reports a step."""
    ranks = period(metrics).ranks
    if not ranks:
        return time_shares(metrics)
    return shares_of({f"{phase}_s": sum(one.phases[phase] for one in ranks) for phase in PHASES})


def time_text(metrics: RunMetrics) -> str:
    """Such as ``input 31 %, computing 52 % (all workers, without the first 5 s)``. Empty without times.

    The shares are means: a verdict that blames one worker or the slowest of them has other ones.
    """
    shares = shares_text(steady_shares(metrics))
    if not shares:
        return ""
    read = period(metrics)
    if not read.ranks:
        return f"{shares} (of the whole run: no worker reported a step)"
    # Not "warm-up": `status` reads only the last minutes of a log.
    without = f", without the first {read.warm_up:.0f} s" if read.warm_up >= 0.5 else ""
    return f"{shares} (all workers{without})"
