"""Environment variables that are not the job's to set, and the metrics' expressions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.spec import EngineOptions
from smdp_launch.rules.facts import Facts, Finding, rule

#: Of these the containers' toolkits, the engine and the platform say what they are.
_FIXED = {
    "TRAINING_JOB_NAME": "SageMaker sets it",
    "TRAINING_JOB_ARN": "SageMaker sets it",
    "AWS_REGION": "SageMaker sets it to the job's region",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "SageMaker sets it for the execution role",
    **dict.fromkeys(
        ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        "each worker gets its own value at the start",
    ),
    **dict.fromkeys(
        ("SMDP_HOST_ID", "SMDP_ML_ROOT", "SMDP_HOSTS_FILE", "SMDP_GENERATION"), "the entrypoint sets it on each host"
    ),
}
_PREFIXES = {
    "SM_": "the container's toolkit sets those that begin with SM_",
    "SAGEMAKER_": "the container's toolkit reads those that begin with SAGEMAKER_ in place of the job's own settings",
    "OMPI_": "mpirun sets those that begin with OMPI_",
}
_FIELDS = {
    "SMDP_ENGINE": "engine",
    "SMDP_AMP": "amp",
    **{f"SMDP_{name.upper()}": f"engine_options.{name}" for name in EngineOptions.model_fields if "mpi" not in name},
}


@rule("SMDP605", "environment")
def reserved_variables(facts: Facts) -> Iterator[Finding]:
    for name in facts.spec.environment:
        reason = _FIXED.get(name) or next((why for start, why in _PREFIXES.items() if name.startswith(start)), None)
        if name in _FIELDS:
            message = f"{name} is what the field `{_FIELDS[name]}` sets"
            yield Finding(("environment", name), message, f"write `{_FIELDS[name]}:` in its place", on_key=True)
        elif reason is not None:
            message = f"{name} is reserved: {reason}"
            yield Finding(("environment", name), message, "leave it out, or choose another name", on_key=True)


def _expression(text: str) -> re.Pattern[str]:
    """Raises re.error. What a later Python may read in another way is no matter of the job's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(text)


@rule("SMDP606", "metrics")
def metric_expressions(facts: Facts) -> Iterator[Finding]:
    for name, text in facts.spec.metrics.items():
        try:
            _expression(text)
        except re.error as error:
            message = f"metric {name}: not a regular expression, {error.msg}"
            place = f" at character {error.pos + 1}" if error.pos is not None else ""
            yield Finding(("metrics", name), f"{message}{place}", r"a bracket itself is written \( in single quotes")


@rule("SMDP606", "metrics", severity=Severity.WARNING)
def metric_finds_a_value(facts: Facts) -> Iterator[Finding]:
    for name, text in facts.spec.metrics.items():
        try:
            groups = _expression(text).groups
        except re.error:
            continue
        if groups == 0:
            message = f"metric {name}: the expression has no group, so it finds a line and no value in it"
            yield Finding(("metrics", name), message, f"put the number in brackets, such as '{name}=([0-9.]+)'")
