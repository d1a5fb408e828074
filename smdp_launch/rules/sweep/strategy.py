"""What each strategy needs, and the objective that it works for.

The limits are those of the SageMaker API reference: HyperParameterTuningJobConfig, HyperbandStrategyConfig and
ResourceLimits, and of the developer guide's pages about strategies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from smdp_launch.diagnostics import closest
from smdp_launch.jobfile.model.sweep import MAX_SWEEP_NAME, Sweep
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.request.tuning import EPOCHS, combinations, range_names
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.sweep.ranges import RANGES
from smdp_launch.rules.sweep.section import section

_STRATEGY: Location = ("sweep", "strategy")
_TRIALS: Location = ("sweep", "trials")
_PARALLEL: Location = ("sweep", "parallel")
_HYPERBAND: Location = ("sweep", "hyperband")


@rule("SMDP520", "name")
def name_fits(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None or sweep.name is not None or len(facts.spec.name) <= MAX_SWEEP_NAME:
        return
    message = (
        f"{facts.spec.name} has {len(facts.spec.name)} characters: the name of a tuning job has 32 at most, and "
        f"{MAX_SWEEP_NAME} without its time"
    )
    cut = facts.spec.name[: MAX_SWEEP_NAME + 1]
    short = (cut.rpartition("-")[0] or cut[:MAX_SWEEP_NAME]).rstrip("-")
    help_ = f"add `sweep.name`, such as `name: {short}`"
    yield Problem(("sweep",), message, help_, on_key=True, write={("sweep", "name"): to_yaml(short)})


@rule("SMDP521", "metrics")
def metric_is_defined(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None or sweep.objective.metric in facts.spec.metrics:
        return
    at: Location = ("sweep", "objective", "metric")
    names = list(facts.spec.metrics)
    message = f"no entry of `metrics` is called {sweep.objective.metric}, so no trial would have a result"
    meant = closest(sweep.objective.metric, names)
    if meant is not None:
        yield Problem(at, message, f'did you mean "{meant}"?', replacement=to_yaml(meant))
        return
    listed = f"; `metrics` has {', '.join(names)}" if names else ""
    help_ = f"add it with a regular expression, such as `metrics: {{{sweep.objective.metric}: 'loss=([0-9.]+)'}}`"
    yield Problem(at, message, f"{help_}{listed}")


@rule("SMDP525", "script.hyperparameters")
def keys_of_the_strategy(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None:
        return
    if sweep.strategy == "grid":
        yield from _grid(sweep)
    elif sweep.trials is None:
        message = f"`trials` is not set, and with `strategy: {sweep.strategy}` nothing else says how many there are"
        yield Problem(("sweep",), message, "add it, such as `trials: 20`", on_key=True)
    if sweep.strategy == "hyperband":
        yield from _hyperband(facts, sweep)
    elif facts.document.is_written(_HYPERBAND):
        message = f"`hyperband` has no meaning for `strategy: {sweep.strategy}`"
        yield Problem(_HYPERBAND, message, "remove it, or write `strategy: hyperband`", on_key=True)


def _grid(sweep: Sweep) -> Iterator[Problem]:
    for kind in ("integer", "continuous"):
        for name in getattr(sweep.ranges, kind):
            message = f"a grid has only lists, and {name} has bounds"
            help_ = f"write a list in `categorical`, such as `{name}: [1, 2, 4]`, or `strategy: random`"
            yield Problem((*RANGES, kind, name), message, help_, on_key=True)
    wanted = combinations(sweep)
    has_bounds = bool(sweep.ranges.integer or sweep.ranges.continuous)
    if sweep.trials is not None and sweep.trials != wanted and not has_bounds:
        message = f"the lists have {wanted} combinations, and `trials` is {sweep.trials}: a grid tries each of them"
        yield Problem(_TRIALS, message, "remove it", remove=True)


def _hyperband(facts: Facts, sweep: Sweep) -> Iterator[Problem]:
    low, high = sweep.hyperband.min_resource, sweep.hyperband.max_resource
    if sweep.early_stopping == "auto":
        message = "`strategy: hyperband` stops trials by itself, and SageMaker refuses `early_stopping: auto` with it"
        yield Problem(("sweep", "early_stopping"), message, "remove it", remove=True)
    if low is not None and high is not None and low > high:
        message = f"`min_resource` is {low}, which is more than `max_resource`, {high}"
        yield Problem((*_HYPERBAND, "min_resource"), message, f"write {high} or less")
    if high is None and not set(EPOCHS) & set(facts.spec.script.hyperparameters):
        message = (
            "Hyperband needs the most epochs of a trial, and neither `max_resource` nor a hyperparameter such as "
            "`epochs` with one value says it"
        )
        yield Problem(_STRATEGY, message, "add `hyperband: {max_resource: N}`, with the number of epochs")


@rule("SMDP526")
def trials_at_a_time(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None or (sweep.strategy == "grid" and (sweep.ranges.integer or sweep.ranges.continuous)):
        return
    most = combinations(sweep) if sweep.strategy == "grid" else sweep.trials
    if most is not None and sweep.parallel > most:
        message = f"`parallel` is {sweep.parallel}, and the sweep has {most} trials"
        yield Problem(_PARALLEL, message, f"write {most} or less", replacement=str(most))


@rule("SMDP532")
def enough_combinations(facts: Facts) -> Iterator[Problem]:
    """The message of the service: https://github.com/aws/amazon-sagemaker-operator-for-k8s/issues/123."""
    sweep = section(facts)
    if sweep is None or sweep.strategy == "grid" or sweep.ranges.continuous or not range_names(sweep):
        return
    whole = [one.max - one.min + 1 for one in sweep.ranges.integer.values()]
    if sweep.trials is None or any(one <= 1 for one in whole):  # SMDP523 reports those
        return
    found = math.prod(whole) * combinations(sweep)
    if sweep.trials > found:
        message = f"the ranges have {found} combinations, and `trials` is {sweep.trials}: SageMaker refuses more"
        yield Problem(_TRIALS, message, f"write {found} or less, or widen a range", replacement=str(found))
