"""The ranges of a sweep: bounds, lists, scales and names."""

from __future__ import annotations

import json
from collections.abc import Iterator

from smdp_launch.jobfile.model.sweep import ContinuousRange, IntegerRange, Sweep
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.batch import script_hyperparameters
from smdp_launch.request.tuning import number
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.sweep.section import section

RANGES: Location = ("sweep", "ranges")
_KINDS = ("integer", "continuous", "categorical")


def places(sweep: Sweep) -> Iterator[tuple[str, Location]]:
    """Each hyperparameter with a range, and the range's location; a name of two kinds comes twice."""
    for kind in _KINDS:
        for name in getattr(sweep.ranges, kind):
            yield name, (*RANGES, kind, name)


@rule("SMDP522", "script.hyperparameters", "batch", "compute.instance_type", "compute.instance_count")
def hyperparameter_has_one_value(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    fixed = script_hyperparameters(facts.spec) if sweep is not None else {}
    of_batch = facts.spec.batch.hyperparameter if facts.spec.batch is not None else None
    seen: dict[str, Location] = {}
    for name, at in places(sweep) if sweep is not None else ():
        if name in seen:
            message = f"{name} has a range in {'.'.join(map(str, seen[name][:-1]))} too"
            yield Problem(at, message, "remove one of them", on_key=True)
        elif name == of_batch:
            message = f"{name} has a range, and `batch.hyperparameter` sets it too"
            yield Problem(at, message, "remove the range, or `batch.hyperparameter`", on_key=True)
        elif name in fixed:
            message = f"{name} has a range, and a value in script.hyperparameters"
            help_ = "remove the value: each trial gets one of the range"
            yield Problem(("script", "hyperparameters", name), message, help_, on_key=True, remove=True)
        seen.setdefault(name, at)


@rule("SMDP523")
def range_has_values(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None:
        return
    if not any(True for _ in places(sweep)):
        message = "the sweep has no ranges, so all trials would be the same"
        yield Problem(RANGES, message, "add one, such as `continuous: {lr: {min: 0.001, max: 0.1}}`", on_key=True)
    for name, at in places(sweep):
        kind = at[2]
        if kind == "categorical":
            yield from _list(at, name, [json.dumps(one) for one in sweep.ranges.categorical[name]])
            continue
        one: IntegerRange | ContinuousRange = getattr(sweep.ranges, str(kind))[name]
        low, high = _text(one.min), _text(one.max)
        if one.min > one.max:
            message = f"the bounds of {name} are reversed: `min` is {low}, and `max` is {high}"
            write: dict[Location, str] = {(*at, "min"): high, (*at, "max"): low}
            yield Problem((*at, "min"), message, f"write `min: {high}` and `max: {low}`", write=write)
        elif one.min == one.max:
            message = f"the range of {name} has only the value {low}"
            yield Problem(at, message, "widen the range, or move the value to script.hyperparameters", on_key=True)


def _list(at: Location, name: str, values: list[str]) -> Iterator[Problem]:
    twice = next((one for index, one in enumerate(values) if one in values[:index]), None)
    if twice is not None:
        message = f"the list of {name} has {twice} twice, so trials would be repeated"
        yield Problem((*at, values.index(twice, values.index(twice) + 1)), message, "remove one of them")


@rule("SMDP524")
def scale_fits_the_range(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None:
        return
    bounded: dict[Location, IntegerRange | ContinuousRange] = {
        **{(*RANGES, "integer", name): one for name, one in sweep.ranges.integer.items()},
        **{(*RANGES, "continuous", name): one for name, one in sweep.ranges.continuous.items()},
    }
    for at, one in bounded.items():
        low, high = min(one.min, one.max), max(one.min, one.max)
        if one.scaling == "logarithmic" and low <= 0:
            message = f"a logarithmic scale has only numbers above 0, and the range of {at[-1]} begins at {_text(low)}"
            yield Problem((*at, "scaling"), message, "raise `min` above 0, or write `scaling: linear`")
        if one.scaling == "reverse_logarithmic" and not (low >= 0 and high < 1):
            message = (
                f"a reverse logarithmic scale has only numbers from 0 to below 1, and the range of {at[-1]} is "
                f"{_text(low)} to {_text(high)}"
            )
            yield Problem((*at, "scaling"), message, "change the bounds, or write `scaling: linear`")


def _text(value: float) -> str:
    return str(value) if isinstance(value, int) else number(value)
