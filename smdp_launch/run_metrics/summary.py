"""A run in a few numbers: how far it is, how fast, and where its time went. Also as text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from smdp_launch.run_metrics.run import PHASES, RankMetrics, RunMetrics
from smdp_launch.run_metrics.series import Window
from smdp_launch.run_metrics.steady import clean, steady
from smdp_launch.units import duration

#: The groups of phases that people see, in the order of a step.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "input": ("input",),
    "computing": ("copy", "forward", "backward", "optimizer"),
    "exchanges": ("exchange",),
    "checkpoints": ("checkpoint",),
    "logging": ("logging",),
    "evaluation": ("evaluation",),
    "other": ("other",),
}
#: Larger values are shown with an exponent.
_MOST_DIGITS = 1e15
#: A smaller share is not part of a text.
_LEAST_SHARE = 0.005
_ENVELOPE = ("smdp_event", "event", "time", "rank")


@dataclass(frozen=True)
class Totals:
    """Of the whole run. None where the events do not say it.

    Args:
        steps: the last reported step.
        first: the first reported step, if the job continued from an earlier one's; else None.
        seconds: from the first reported step or ``timing`` window to the last, without pauses and jumps of the clock.
        samples: of all workers.
        steps_per_second: between the first reported step and the last, else in the steady part of the run.
        samples_per_second: in the steady part of the run (``run_metrics.steady``).
    """

    steps: int | None
    first: int | None
    seconds: float | None
    samples: float | None
    steps_per_second: float | None
    samples_per_second: float | None


def main_metric(metrics: RunMetrics) -> str | None:
    """``loss`` if the script reports it; else the first metric with that in its name; else the first metric."""
    if "loss" in metrics.metrics:
        return "loss"
    losses = (name for name in metrics.metrics if "loss" in name.lower())
    return next(losses, next(iter(metrics.metrics), None))


def shares_of(values: Mapping[str, float]) -> dict[str, float]:
    """The share of each group in the sums of ``timing`` events; they sum to 1. Empty without a time."""
    seconds = {
        group: sum(max(0.0, values.get(f"{phase}_s", 0.0)) for phase in phases) for group, phases in GROUPS.items()
    }
    total = sum(seconds.values())
    return {group: one / total for group, one in seconds.items()} if total > 0 else {}


def time_shares(metrics: RunMetrics) -> dict[str, float]:
    """Where the time of all workers went, by group; they sum to 1. Empty without ``timing`` events."""
    return shares_of(summed(metrics.ranks.values()))


def summed(ranks: Iterable[RankMetrics]) -> dict[str, float]:
    """The sums of the phases of these ranks, in seconds."""
    sums: dict[str, float] = {}
    for rank in ranks:
        whole = rank.timing.total()
        for phase in PHASES if whole is not None else ():
            name = f"{phase}_s"
            sums[name] = sums.get(name, 0.0) + (whole.values.get(name, 0.0) if whole is not None else 0.0)
    return sums


def totals(metrics: RunMetrics) -> Totals:
    windows = [one for one in (rank.timing.total() for rank in metrics.ranks.values()) if one is not None]
    samples = sum(one.values.get("samples", 0.0) for one in windows) or None
    points = [(one.time, one.step) for one in metrics.progress.bins]
    covered = max((one.seconds for one in windows), default=None)
    elapsed = sum(max(0.0, later - before) for (before, _), (later, _) in itertools.pairwise(points))
    if elapsed > 0:
        # The intervals are measured by a clock that does not jump, and have no pauses.
        seconds = elapsed if covered is None else min(elapsed, covered)
        steps: int | None = metrics.step
        done: float = _advance(points)
    else:
        seconds = covered or 0.0
        done = max((one.values.get("steps", 0.0) for one in windows), default=0.0)
        steps = metrics.step if metrics.step is not None else int(min(done, 1 << 53)) or None
    found = steady(metrics)
    parts = [*found.windows.values()] if found is not None else []
    rate = done / seconds if elapsed > 0 and seconds > 0 and done else max(_rates(parts, "steps"), default=0.0)
    samples_rate = sum(_rates(parts, "samples"))
    return Totals(steps, _continued(metrics), seconds or None, samples, rate or None, samples_rate or None)


def _continued(metrics: RunMetrics) -> int | None:
    """The first reported step, if it is later than the first report of a script that starts at step 1."""
    reports = sum(one.values for one in metrics.progress.bins)
    if metrics.step is None or metrics.first_step is None or reports < 2:
        return None
    interval = (metrics.step - metrics.first_step) / (reports - 1)
    return metrics.first_step if metrics.first_step > max(1.0, 1.5 * interval) else None


def _advance(points: list[tuple[float, int]]) -> int:
    """The steps between the first report and the last, repeated steps included."""
    return sum(max(0, later - before) for (_, before), (_, later) in itertools.pairwise(points))


def _rates(parts: Iterable[Sequence[Window]], name: str) -> list[float]:
    """The sums of this name a second, of each rank's windows."""
    return [sum(clean(one.values.get(name)) for one in each) / sum(one.seconds for one in each) for each in parts]


def rate_text(steps_per_second: float | None, samples_per_second: float | None) -> str | None:
    """Such as ``1,240 samples/s``; the steps where the number of samples is unknown."""
    if samples_per_second:
        return f"{number(samples_per_second)} samples/s"
    return f"{number(steps_per_second)} steps/s" if steps_per_second else None


def number(value: float) -> str:
    """A measured value with three digits, or with all digits of a larger number: ``0.125``, ``12.4``, ``1,240``."""
    if 100 <= abs(value) < _MOST_DIGITS:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def left_text(seconds: float) -> str:
    """Such as ``4 min left``, in one or two units."""
    return f"{about(seconds)} left"


def about(seconds: float) -> str:
    """A duration, rounded: ``45 s``, ``4 min``, ``1 h 20 min``, ``2 d 5 h``."""
    whole = int(min(max(0.0, seconds), 1e9))
    for limit, unit in ((120, 1), (7200, 60), (172_800, 600)):
        if whole < limit:
            return duration((whole + unit // 2) // unit * unit)
    return duration((whole + 1800) // 3600 * 3600)


def shares_text(shares: Mapping[str, float]) -> str:
    """Such as ``input 31 %, computing 52 %, exchanges 12 %``; the small shares are left out."""
    return ", ".join(
        f"{name} {share:.0%}".replace("%", " %") for name, share in shares.items() if share >= _LEAST_SHARE
    )


def progress_text(metrics: RunMetrics) -> str:
    """The present state: ``step 120 of 310, loss 0.31, 1,240 samples/s, 4 min left``. Empty if nothing is known."""
    parts = []
    if metrics.step is not None:
        parts.append(f"step {metrics.step}" + (f" of {metrics.steps}" if metrics.steps is not None else ""))
    name = main_metric(metrics)
    last = metrics.metrics[name].shown() if name is not None else None
    if last is not None:
        parts.append(f"{name} {last}")
    if metrics.hang is not None:
        parts.append(metrics.hang.text)
    rate = rate_text(metrics.steps_per_second, metrics.samples_per_second)
    if rate is not None:
        parts.append(rate)
    if metrics.seconds_left is not None and metrics.step != metrics.steps:
        parts.append(left_text(metrics.seconds_left))
    return ", ".join(parts)


def totals_text(metrics: RunMetrics) -> str:
    """The whole run: ``310 steps, 1,240 samples/s, 12.4 steps/s``; ``steps 201 to 310`` if it continued another one.
    Empty if nothing is known."""
    whole = totals(metrics)
    parts = [f"{whole.steps:,} step{'' if whole.steps == 1 else 's'}"] if whole.steps is not None else []
    if whole.first is not None:
        parts = [f"steps {whole.first:,} to {whole.steps:,}"]
    if whole.samples_per_second:
        parts.append(f"{number(whole.samples_per_second)} samples/s")
    if whole.steps_per_second:
        parts.append(f"{number(whole.steps_per_second)} steps/s")
    return ", ".join(parts)


def numbers_json(metrics: RunMetrics) -> dict[str, object]:
    """The numbers of a run as JSON (docs/reference/json.md)."""
    whole = totals(metrics)
    return {
        "step": metrics.step,
        "steps": metrics.steps,
        "metrics": {name: one.last for name, one in metrics.metrics.items()},
        "results": {name: value for name, value in metrics.results.items() if name not in _ENVELOPE},
        "steps_per_second": metrics.steps_per_second,
        "samples_per_second": metrics.samples_per_second,
        "seconds_left": metrics.seconds_left,
        "hang": metrics.hang.to_json() if metrics.hang is not None else None,
        "mean_steps_per_second": whole.steps_per_second,
        "mean_samples_per_second": whole.samples_per_second,
        "time_shares": time_shares(metrics),
        "saves": metrics.saves.to_json() if metrics.saves.saves else None,
    }
