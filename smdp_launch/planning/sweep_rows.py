"""The rows of a plan about its sweep."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.jobfile.model.sweep import Sweep
from smdp_launch.planning.plan import Plan
from smdp_launch.request.hyperparameters import encode_value
from smdp_launch.request.tuning import number
from smdp_launch.units import count, duration, titled

Row = tuple[str, str]


def sweep_rows(plan: Plan) -> list[Row]:
    """Empty for a job without a sweep."""
    sweep, bounds = plan.spec.sweep, plan.sweep_bounds
    if sweep is None or bounds is None:
        return []
    at_a_time = f", {sweep.parallel} at a time" if bounds.trials > 1 else ""
    target = f", until it is {sweep.objective.target:g}" if sweep.objective.target is not None else ""
    rows = [
        ("sweep", f"{count(bounds.trials, 'trial')}{at_a_time}, strategy {sweep.strategy}"),
        ("", f"{sweep.objective.goal} {sweep.objective.metric}{target}"),
    ]
    if sweep.early_stopping == "auto":
        rows.append(("", "trials that are worse than the median of earlier ones are stopped"))
    if sweep.warm_start is not None:
        rows.append(("", f"starts from {', '.join(sweep.warm_start.parents)} ({sweep.warm_start.type})"))
    rows += titled("tries", list(_ranges(sweep)))
    return [*rows, ("all trials", _cost(plan))]


def _cost(plan: Plan) -> str:
    bounds, sweep = plan.sweep_bounds, plan.spec.sweep
    if bounds is None or sweep is None:
        return ""
    text = f"at most {duration(bounds.seconds)} of run time, {bounds.instance_hours:,.2f} instance-hours"
    if bounds.usd is not None:
        text += f": {bounds.usd:,.2f} USD"
    if sweep.budget.max_usd is not None:
        text += f"; the sweep's budget is {sweep.budget.max_usd:,.2f} USD"
    return text


def _ranges(sweep: Sweep) -> Iterator[str]:
    for name, whole in sweep.ranges.integer.items():
        yield f"{name}: {whole.min} to {whole.max}, whole numbers{_scale(whole.scaling)}"
    for name, real in sweep.ranges.continuous.items():
        yield f"{name}: {number(real.min)} to {number(real.max)}{_scale(real.scaling)}"
    for name, values in sweep.ranges.categorical.items():
        yield f"{name}: {', '.join(encode_value(one) for one in values)}"


def _scale(scaling: str) -> str:
    return "" if scaling == "auto" else f", {scaling.replace('_', ' ')} scale"
