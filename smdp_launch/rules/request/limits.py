"""The limits of SageMaker's API: each field separately, and at the end the whole request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.catalog.limits import compiled
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.request.build import training_request
from smdp_launch.request.environment import environment
from smdp_launch.request.hyperparameters import encode_value
from smdp_launch.request.limits import ANY, Path, Violation, check_key, check_value, walk
from smdp_launch.request.names import S3Location
from smdp_launch.rules.base.facts import ENVIRONMENT_FIELDS, Facts, Problem, rule
from smdp_launch.rules.base.request_fields import FIELDS, field_of

#: Hyperparameters that the launcher adds to a request; one less if the job lists fallback types.
LAUNCH_HYPERPARAMETERS = 8
#: The most hyperparameters of a request.
MOST_HYPERPARAMETERS = 100
#: The most characters of a job's name.
LONGEST_NAME = 63

_HYPERPARAMETERS = ("script", "hyperparameters")
_CHANNEL: Path = ("InputDataConfig", ANY)
_S3: Path = (*_CHANNEL, "DataSource", "S3DataSource")
_FILE_SYSTEM: Path = (*_CHANNEL, "DataSource", "FileSystemDataSource")

#: Fields of a channel that are copied to the request unchanged.
_CHANNEL_FIELDS: dict[str, Path] = {
    "s3": (*_S3, "S3Uri"),
    "attributes": (*_S3, "AttributeNames"),
    "content_type": (*_CHANNEL, "ContentType"),
    "shuffle": (*_CHANNEL, "ShuffleConfig", "Seed"),
    "fsx": (*_FILE_SYSTEM, "FileSystemId"),
    "efs": (*_FILE_SYSTEM, "FileSystemId"),
    "path": (*_FILE_SYSTEM, "DirectoryPath"),
}
# Fields that the request has in another form than the job file, and instance types, which have rules of their own.
_CONVERTED = frozenset(
    {
        *(
            "InstanceType",
            "InstanceGroups",
            "InstancePreferences",
            "AlgorithmName",
            "TrainingInputMode",
            "MetricDefinitions",
        ),
        *("HyperParameters", "Environment", "InputDataConfig", "CompressionType", "EnableManagedSpotTraining"),
        *("Tags", "S3Uri"),
    }
)
_KEYS: dict[Location, Path] = {
    _HYPERPARAMETERS: ("HyperParameters",),
    ("environment",): ("Environment",),
}
_NAMED: dict[Location, tuple[Path, str, str]] = {
    ("metrics",): (("AlgorithmSpecification", "MetricDefinitions", ANY), "Name", "Regex"),
    ("tags",): (("Tags", ANY), "Key", "Value"),
}


@rule("SMDP601")
def fields_within_limits(facts: Facts) -> Iterator[Problem]:
    for at, path, value in [*_plain(facts), *_of_channels(facts), *_mapped(facts)]:
        yield from _problems(at, check_value(path, value))
    for at, path in _KEYS.items():
        for key in _mapping(facts, at):
            yield from _problems((*at, key), check_key(path, key), on_key=True)
    for at, (path, name, _) in _NAMED.items():
        for key in _mapping(facts, at):
            yield from _problems((*at, key), check_value((*path, name), key), on_key=True)


def _plain(facts: Facts) -> Iterator[tuple[Location, Path, Any]]:
    """Fields that are copied to the request unchanged."""
    for path, at in FIELDS.items():
        value = None if path[-1] in _CONVERTED else _value(facts, at)
        if value is not None:
            yield at, path, value


def _of_channels(facts: Facts) -> Iterator[tuple[Location, Path, Any]]:
    for name, _ in facts.channels():
        for field, path in _CHANNEL_FIELDS.items():
            value = _value(facts, ("channels", name, field))
            if value is not None:
                yield ("channels", name, field), path, value


def _mapped(facts: Facts) -> Iterator[tuple[Location, Path, Any]]:
    for key, value in _mapping(facts, _HYPERPARAMETERS).items():
        yield (*_HYPERPARAMETERS, key), ("HyperParameters", ANY), encode_value(value)
    for key, value in _mapping(facts, ("environment",)).items():
        yield ("environment", key), ("Environment", ANY), value
    for at, (path, _, field) in _NAMED.items():
        for key, value in _mapping(facts, at).items():
            yield (*at, key), (*path, field), value


def _value(facts: Facts, at: Location) -> Any:
    """The value of the file at ``at``; None if it has a schema error."""
    value: Any = facts.document.data
    for part in at:
        value = value.get(part) if isinstance(value, dict) else None
    return value if facts.loaded.has(*map(str, at)) else None


def _mapping(facts: Facts, at: Location) -> dict[str, Any]:
    """The entries of a mapping that have no schema errors."""
    mapping = _value(facts, at) or {}
    return {key: one for key, one in mapping.items() if facts.loaded.has(*map(str, at), key)}


def _problems(at: Location, violations: Iterator[Violation], *, on_key: bool = False) -> Iterator[Problem]:
    for one in violations:
        message = f"SageMaker refuses {'.'.join(map(str, at))}: {one.message}"
        yield Problem(at, message, instead(one), on_key=on_key, replacement=None if on_key else meant(one))


def meant(one: Violation) -> str | None:
    """The value, as YAML, that the help of `instead` names; None if it names none."""
    if one.meant is not None:
        return to_yaml(one.meant)
    if one.kind == "type" and one.limit == "true or false":
        return {"true": "true", "yes": "true", "false": "false", "no": "false"}.get(str(one.value).lower())
    if one.help or one.kind != "pattern":
        return None
    simple = _simple(one)
    return to_yaml(simple) if simple else None


def _simple(one: Violation) -> str:
    """The text with only letters, digits and hyphens, if the service accepts it; else empty."""
    simple = re.sub(r"[^A-Za-z0-9]+", "-", str(one.value)).strip("-")
    return simple if compiled(one.limit).fullmatch(simple) else ""


def instead(one: Violation) -> str:
    """The help for a value that breaks a limit."""
    if one.help:
        return one.help
    if one.kind == "pattern":
        return f"write {_simple(one)}" if _simple(one) else "change it to match the pattern"
    if one.kind in ("min", "max") and not isinstance(one.value, int | float):
        difference = abs(len(one.value) - one.limit)
        return f"{'shorten' if one.kind == 'max' else 'lengthen'} it by {difference}"
    kind = meant(one) or one.limit
    fixes = {"required": f"add {one.limit}", "type": f"write {kind}", "enum": "write one of these values"}
    return fixes.get(one.kind, f"write {one.limit} or {'less' if one.kind == 'max' else 'more'}")


@rule("SMDP601", "checkpoint.s3", "checkpoint.shared")
def checkpoint_location(facts: Facts) -> Iterator[Problem]:
    if facts.spec.checkpoint is not None and not facts.spec.checkpoint.shared:
        location = S3Location.parse(facts.spec.checkpoint.s3).join("n" * LONGEST_NAME)
        for one in check_value(("CheckpointConfig", "S3Uri"), str(location)):
            message = f"SageMaker refuses checkpoint.s3 followed by the job's name: {one.message}"
            yield Problem(("checkpoint", "s3"), message, instead(one))


@rule("SMDP602", "script.hyperparameters", "batch.hyperparameter", "compute.fallback_types")
def few_enough_hyperparameters(facts: Facts) -> Iterator[Problem]:
    batch = facts.spec.batch
    amount = len(facts.spec.script.hyperparameters) + (batch is not None and batch.hyperparameter is not None)
    compute = facts.spec.compute
    added = LAUNCH_HYPERPARAMETERS - (compute.fallback_types is not None) + bool(compute.other_groups)
    added -= facts.has("engine") and facts.spec.engine in TORCH_DISTRIBUTED  # which has no options for mpirun
    most = MOST_HYPERPARAMETERS - added
    if amount > most:
        message = (
            f"{amount} hyperparameters are too many: SageMaker allows {MOST_HYPERPARAMETERS},"
            f" and the launcher adds {added}"
        )
        help_ = f"remove {amount - most}, or move some to one mapping or to a file of the source folder"
        yield Problem(_HYPERPARAMETERS, message, help_, on_key=True)


@rule("SMDP601", *ENVIRONMENT_FIELDS)
def few_enough_variables(facts: Facts) -> Iterator[Problem]:
    if len(facts.spec.environment) < len(environment(facts.spec)):
        variables = environment(facts.spec)
        for one in check_value(("Environment",), dict.fromkeys(variables, "")):
            added = len(variables) - len(facts.spec.environment)
            message = f"SageMaker refuses the environment: {one.message}, and the launcher adds {added} of them"
            yield Problem(("environment",), message, f"remove {len(variables) - one.limit}", on_key=True)


@rule("SMDP601", last=True)
def request_within_limits(facts: Facts) -> Iterator[Problem]:
    """The whole request: limits that the rules about single fields do not check."""
    if facts.source is None:
        return
    request = training_request(facts.spec, facts.source, f"{facts.spec.name}-20260101000000-0000")
    for one in walk(request):
        at = _origin(facts, one.path)
        field = ".".join(str(part) for part in one.path)
        yield Problem(at, f"SageMaker refuses {field}, which is made from this value: {one.message}", instead(one))


def _origin(facts: Facts, path: Path) -> Location:
    """The field of the job file that makes the request's field at ``path``; for a channel, the channel."""
    at = field_of(path) or ("overlay", *path)
    if at == ("channels",) and len(path) > 1 and isinstance(path[1], int):
        names = sorted(facts.spec.channels)
        return ("channels", names[path[1]]) if path[1] < len(names) else at
    while at and not facts.document.is_written(at):
        at = at[:-1]
    return at or ("name",)
