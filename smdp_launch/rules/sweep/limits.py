"""The limits of a tuning job, which are lower than those of its training jobs, and the fields that it cannot have."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.catalog.limits import shape
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.build import Request, training_request
from smdp_launch.request.environment import environment
from smdp_launch.request.limits import Path, walk
from smdp_launch.request.tuning import (
    MOST_RANGES,
    OPERATION,
    base_name,
    lost_fields,
    range_names,
    tuning_request,
)
from smdp_launch.rules.base.facts import ENVIRONMENT_FIELDS, Facts, Problem, rule
from smdp_launch.rules.base.request_fields import field_of
from smdp_launch.rules.request.limits import LAUNCH_HYPERPARAMETERS, MOST_HYPERPARAMETERS, instead
from smdp_launch.rules.sweep.ranges import RANGES
from smdp_launch.rules.sweep.section import section

_RANGES = ("HyperParameterTuningJobConfig", "ParameterRanges")
#: The job file's kind of range for each kind of the request.
_KINDS = {
    "IntegerParameterRanges": "integer",
    "ContinuousParameterRanges": "continuous",
    "CategoricalParameterRanges": "categorical",
}


@rule("SMDP527", "overlay", "remote_debug", "tracking.tensorboard")
def fields_of_a_tuning_job(facts: Facts) -> Iterator[Problem]:
    if section(facts) is None:
        return
    for path in lost_fields(facts.spec.overlay):
        message = f"a tuning job has no {'.'.join(map(str, path))}, so the trials would run without it"
        at: Location = ("overlay", *path)
        yield Problem(at, message, "remove it, or run one job without `sweep`", on_key=True, remove=True)
    help_ = "remove it, or run one job without `sweep`"
    if facts.spec.remote_debug:
        message = "a tuning job has no RemoteDebugConfig, so no shell could be opened in the trials"
        yield Problem(("remote_debug",), message, help_, on_key=True, remove=True)
    if facts.spec.tracking.tensorboard is not None:
        message = "a tuning job has no TensorBoardOutputConfig, so the event files of the trials would be lost"
        at = ("tracking", "tensorboard")
        yield Problem(at, message, f"{help_}; `mlflow` and `wandb` record trials", on_key=True)


@rule("SMDP528", "script.hyperparameters", "batch.hyperparameter", "compute.fallback_types")
def few_enough_hyperparameters(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None:
        return
    ranges = len(range_names(sweep))
    if ranges > MOST_RANGES:
        message = f"{ranges} ranges are too many: SageMaker allows {MOST_RANGES} of all kinds together"
        yield Problem(RANGES, message, f"remove {ranges - MOST_RANGES}", on_key=True)
    batch = facts.spec.batch
    fixed = len(facts.spec.script.hyperparameters) + (batch is not None and batch.hyperparameter is not None)
    compute = facts.spec.compute
    added = LAUNCH_HYPERPARAMETERS - (compute.fallback_types is not None) + bool(compute.other_groups) + 1
    added -= facts.has("engine") and facts.spec.engine in TORCH_DISTRIBUTED
    excess = fixed + ranges + added - MOST_HYPERPARAMETERS
    if 0 < excess <= ranges:
        message = (
            f"{fixed} hyperparameters and {ranges} ranges are too many: SageMaker allows {MOST_HYPERPARAMETERS} of "
            f"both together, and adds with the launcher {added}"
        )
        yield Problem(RANGES, message, f"remove {excess}", on_key=True)


@rule("SMDP528", *ENVIRONMENT_FIELDS)
def few_enough_variables(facts: Facts) -> Iterator[Problem]:
    most = shape("HyperParameterTrainingJobEnvironmentMap").maximum
    if section(facts) is None or most is None:
        return
    amount, own = len(environment(facts.spec)), len(facts.spec.environment)
    if amount > most:
        added = f", and the launcher adds {amount - own}" if amount > own else ""
        message = f"{own} variables are too many: a tuning job allows {most}, fewer than a training job{added}"
        yield Problem(("environment",), message, f"remove {amount - most}", on_key=True)


@rule("SMDP533")
def parents_differ(facts: Facts) -> Iterator[Problem]:
    sweep = section(facts)
    if sweep is None or sweep.warm_start is None:
        return
    parents = sweep.warm_start.parents
    for index, one in enumerate(parents):
        if one in parents[:index]:
            at: Location = ("sweep", "warm_start", "parents", index)
            yield Problem(at, f"{one} is named twice, and each parent counts once", "remove it", remove=True)


@rule("SMDP601", last=True)
def tuning_request_within_limits(facts: Facts) -> Iterator[Problem]:
    """The whole request: limits that the rules about single fields do not check."""
    if section(facts) is None or facts.source is None:
        return
    name = f"{base_name(facts.spec)}-2601010000-0000"
    training = training_request(facts.spec, facts.source, name)
    reported = {(one.path, one.kind) for one in walk(training)}
    request = tuning_request(facts.spec, training, facts.source)
    for one in walk(request, OPERATION):
        inner = _training_path(one.path)
        if (inner, one.kind) not in reported:
            field = ".".join(str(part) for part in one.path)
            message = f"SageMaker refuses {field} of the tuning job: {one.message}"
            yield Problem(_origin(facts, request, one.path, inner), message, instead(one))


def _training_path(path: Path) -> Path:
    """The field of the training job from which a field of the definition is made."""
    if path[:2] == ("TrainingJobDefinition", "StaticHyperParameters"):
        return ("HyperParameters", *path[2:])
    return path[1:] if path[:1] == ("TrainingJobDefinition",) else path


def _origin(facts: Facts, request: Request, path: Path, inner: Path) -> Location:
    at: Location = ("sweep",)
    if path[0] in ("TrainingJobDefinition", "Tags"):
        at = field_of(inner) or at
    elif path[:2] == _RANGES and len(path) > 3:
        kind, index, *rest = path[2:]
        range_ = request["HyperParameterTuningJobConfig"]["ParameterRanges"][str(kind)][int(index)]
        at = (*RANGES, _KINDS[str(kind)], range_["Name"], *(rest[1:] if rest[:1] == ["Values"] else ()))
    while at and not facts.document.is_written(at):
        at = at[:-1]
    return at
