"""Reserved environment variables, and the regular expressions of metrics."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from smdp_launch.diagnostics import Severity, closest
from smdp_launch.jobfile.model.schema import accepts
from smdp_launch.jobfile.model.spec import EngineOptions
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.request.engine_variables import ENGINE_VARIABLES, OTHER_VARIABLES, PIECES_IN_ARENA
from smdp_launch.request.environment import engine_variables
from smdp_launch.rules.base.facts import Facts, Problem, rule

#: Variables that the platform, the container's toolkit or the engine set, with who sets them.
_FIXED = {
    "TRAINING_JOB_NAME": "SageMaker sets it",
    "TRAINING_JOB_ARN": "SageMaker sets it",
    "AWS_REGION": "SageMaker sets it to the job's region",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "SageMaker sets it for the execution role",
    **dict.fromkeys(
        ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        "the launcher sets it for each worker",
    ),
    **dict.fromkeys(
        ("SMDP_HOST_ID", "SMDP_ML_ROOT", "SMDP_HOSTS_FILE", "SMDP_GENERATION"), "the entrypoint sets it on each host"
    ),
}
_PREFIXES = {
    "SM_": "the container's toolkit sets the variables that begin with SM_",
    "SAGEMAKER_": "variables that begin with SAGEMAKER_ override the job's settings in the container's toolkit",
    "OMPI_": "mpirun sets the variables that begin with OMPI_",
}
_FIELDS = {
    "SMDP_ENGINE": "engine",
    "SMDP_AMP": "amp",
    "SMDP_TRACKING": "tracking",
    "SMDP_TRACKING_TENSORBOARD": "tracking.tensorboard.path",
    "SMDP_TRACKING_MLFLOW_EXPERIMENT": "tracking.mlflow.experiment",
    "SMDP_TRACKING_MLFLOW_URI": "tracking.mlflow.uri",
    "SMDP_TRACKING_WANDB_PROJECT": "tracking.wandb.project",
    "SMDP_TRACKING_WANDB_ENTITY": "tracking.wandb.entity",
    **{f"SMDP_{name.upper()}": f"engine_options.{name}" for name in EngineOptions.model_fields if "mpi" not in name},
}


@rule("SMDP605", "environment")
def reserved_variables(facts: Facts) -> Iterator[Problem]:
    for name in facts.spec.environment:
        reason = _FIXED.get(name) or next((why for start, why in _PREFIXES.items() if name.startswith(start)), None)
        if name in _FIELDS:
            message = f"{name} is reserved: the field `{_FIELDS[name]}` sets it"
            help_ = f"replace it with the field `{_FIELDS[name]}`"
            target = _as_field(facts, name, facts.spec.environment[name])
            yield Problem(("environment", name), message, help_, on_key=True, remove=bool(target), write=target)
        elif reason is not None:
            message = f"{name} is reserved: {reason}"
            help_ = "remove it, or choose another name"
            yield Problem(("environment", name), message, help_, on_key=True, remove=True)


@rule("SMDP613", "environment", "engine")
def values_that_the_engine_refuses(facts: Facts) -> Iterator[Problem]:
    for name, value in facts.spec.environment.items():
        variable = ENGINE_VARIABLES.get(name)
        is_reserved = name in _FIXED or name in _FIELDS
        if facts.spec.engine != "native" or variable is None or is_reserved or variable.accepts(value):
            continue
        message = f'{name}: the engine refuses "{value}" when it opens'
        meant = closest(value, variable.words)
        yield Problem(("environment", name), message, f"write {variable.allowed()}", replacement=meant)


@rule("SMDP613", "environment", "engine", "engine_options")
def pieces_too_large_for_the_shared_memory(facts: Facts) -> Iterator[Problem]:
    variables = facts.spec.environment | engine_variables(facts.spec.engine_options)
    arena = variables.get("SMDP_ARENA_MIB", "")
    if facts.spec.engine != "native" or not ENGINE_VARIABLES["SMDP_ARENA_MIB"].accepts(arena):
        return
    most = int(arena) * 1024 // PIECES_IN_ARENA
    for name in ("SMDP_PIECE_KIB", "SMDP_SMALL_KIB"):
        value = variables.get(name, "")
        if ENGINE_VARIABLES[name].accepts(value) and int(value) > most:
            message = f'SMDP_ARENA_MIB: the engine refuses "{arena}" if {name} is "{value}"'
            least = -(-int(value) * PIECES_IN_ARENA // 1024)
            yield Problem(
                ("environment", "SMDP_ARENA_MIB"), message, f"write at least {least}, or set {name} to at most {most}"
            )


@rule("SMDP613", "environment", "engine", severity=Severity.WARNING)
def names_that_the_engine_does_not_read(facts: Facts) -> Iterator[Problem]:
    known = [*ENGINE_VARIABLES, *_FIELDS]
    for name, value in facts.spec.environment.items():
        is_read = not name.startswith("SMDP_") or name in {*known, *OTHER_VARIABLES, *_FIXED}
        if facts.spec.engine != "native" or is_read:
            continue
        at, message = ("environment", name), f"{name}: the engine reads no variable of this name"
        meant = closest(name, known, cutoff=0.8)
        if meant in _FIELDS:
            help_, target = f"did you mean the field `{_FIELDS[meant]}`?", _as_field(facts, meant, value)
            yield Problem(at, message, help_, on_key=True, remove=bool(target), write=target)
        elif meant is not None:
            yield Problem(at, message, f"did you mean {meant}?", on_key=True, replacement=meant)


def _as_field(facts: Facts, name: str, text: str) -> dict[Location, str]:
    """The field that sets the variable, with the variable's value as YAML; empty if the field cannot have it."""
    target = tuple(_FIELDS[name].split("."))
    values = [text, *([float(text), int(float(text))] if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text, re.ASCII) else [])]
    fitting = [one for one in reversed(values) if accepts(target, facts.document.data, one)]
    is_native = facts.has("engine") and facts.spec.engine == "native"
    if not fitting or not is_native or facts.document.is_written(target):
        return {}
    return {target: to_yaml(fitting[0])}


def _expression(text: str) -> re.Pattern[str]:
    """Raises re.error. Warnings about later Python versions are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(text)


@rule("SMDP606", "metrics")
def metric_expressions(facts: Facts) -> Iterator[Problem]:
    for name, text in facts.spec.metrics.items():
        try:
            _expression(text)
        except re.error as error:
            message = f"metric {name}: invalid regular expression, {error.msg}"
            place = f" at character {error.pos + 1}" if error.pos is not None else ""
            help_ = r"fix the expression; to match a parenthesis, write \( in single quotes"
            yield Problem(("metrics", name), f"{message}{place}", help_)


@rule("SMDP606", "metrics", severity=Severity.WARNING)
def metric_has_a_group(facts: Facts) -> Iterator[Problem]:
    for name, text in facts.spec.metrics.items():
        try:
            groups = _expression(text).groups
        except re.error:
            continue
        if groups == 0:
            message = f"metric {name}: the expression has no group, so it finds no value"
            meant = _with_group(text)
            example = to_yaml(meant if meant is not None else f"{name}=([0-9.]+)")
            help_ = f"put parentheses around the value: {example}"
            if meant is None:
                help_ = f"put parentheses around the part that matches the value, such as {example}"
            yield Problem(("metrics", name), message, help_, replacement=to_yaml(meant) if meant is not None else None)


#: One character, class or escape of a regular expression with its quantifier. Other syntax is not analysed.
_PIECE = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[^()|*+?{}\[\]])((?:[*+?]|\{\d*,?\d*\})\??)?", re.DOTALL)
_SAMPLES = ("0.5", "12", "0.1234", "1e-05", "12.5", "7", "1")


def _with_group(text: str) -> str | None:
    """The expression with a group around the last part that matches a number; None if there is no such part."""
    pieces = list(_PIECE.finditer(text))
    if "".join(one[0] for one in pieces) != text:
        return None
    for end in range(len(pieces), 0, -1):
        start = min((one for one in range(end) if _is_number(pieces[one:end])), default=None)
        if start is not None:
            first, last = pieces[start].start(), pieces[end - 1].end()
            return f"{text[:first]}({text[first:last]}){text[last:]}"
    return None


def _is_number(pieces: list[re.Match[str]]) -> bool:
    """Whether these match a number, begin like a number, and are not only literal characters."""
    expression = "".join(one[0] for one in pieces)
    if not any(one[1][0] in "[\\." and one[1] != r"\." for one in pieces):
        return False
    if not any(_matches(pieces[0][1], one) for one in "0-+."):
        return False
    return any(_matches(expression, one) for one in _SAMPLES)


def _matches(expression: str, text: str) -> bool:
    return _expression(expression).fullmatch(text) is not None
