"""The overlay: fields of the request that the job file has no field for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smdp_launch.jobfile.model.derived import moved_value
from smdp_launch.request.limits import Path, Violation, walk
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.request_fields import FIELDS, MADE
from smdp_launch.rules.request.limits import instead, meant

#: Another rule reports several instance groups.
GROUPS: Path = ("ResourceConfig", "InstanceGroups")


@rule("SMDP603", "overlay")
def overlay_of_fields(facts: Facts) -> Iterator[Problem]:
    for path in _fields_in(facts.spec.overlay, ()):
        if path == GROUPS:
            continue
        field = ".".join(str(part) for part in FIELDS[path])
        message = f"{'.'.join(map(str, path))} would override what the field `{field}` writes to the request"
        target = moved_value(facts.document, ("overlay", *path), field) or {}
        help_ = f"replace it with the field `{field}`"
        yield Problem(("overlay", *path), message, help_, on_key=True, remove=bool(target), write=target)


def _fields_in(value: Any, at: Path) -> Iterator[Path]:
    if at in FIELDS:
        yield at
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _fields_in(one, (*at, key))


@rule("SMDP604", "overlay")
def overlay_has_known_fields(facts: Facts) -> Iterator[Problem]:
    for one in _violations(facts):
        if one.kind == "unknown":
            yield _unknown(facts, one)


def _unknown(facts: Facts, one: Violation) -> Problem:
    at, message = ("overlay", *one.path), f"overlay: {one.message}"
    field = FIELDS.get((*one.path[:-1], one.meant)) if one.meant is not None else None
    if field is None:
        help_ = one.help or "see the API reference of CreateTrainingJob"
        return Problem(at, message, help_, on_key=True, replacement=meant(one))
    # The job file has a field for the name that the user meant.
    name = ".".join(map(str, field))
    target = moved_value(facts.document, at, name) or {}
    return Problem(at, message, f"replace it with the field `{name}`", on_key=True, remove=bool(target), write=target)


@rule("SMDP601", "overlay")
def overlay_within_limits(facts: Facts) -> Iterator[Problem]:
    for one in _violations(facts):
        if one.kind != "unknown":
            field = ".".join(str(part) for part in one.path)
            message = f"SageMaker refuses {field}: {one.message}"
            yield Problem(("overlay", *one.path), message, instead(one), replacement=meant(one))


def _violations(facts: Facts) -> Iterator[Violation]:
    """The violations in the overlay that no other rule reports."""
    reported = list(FIELDS)
    for one in walk(facts.spec.overlay):
        is_added = one.kind == "required" and one.path in MADE
        if not is_added and not any(one.path[: len(path)] == path for path in reported):
            yield one
