"""The overlay: raw members of the request, for what the job file has no field for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smdp_launch.jobfile.model.derived import moved
from smdp_launch.request.limits import Path, Violation, walk
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.rules.base.request_fields import FIELDS, MADE
from smdp_launch.rules.request.limits import instead, meant

#: Told as hosts of several kinds.
GROUPS: Path = ("ResourceConfig", "InstanceGroups")


@rule("SMDP603", "overlay")
def overlay_of_fields(facts: Facts) -> Iterator[Finding]:
    for path in _fields_in(facts.spec.overlay, ()):
        field = ".".join(str(part) for part in FIELDS[path])
        message = f"{'.'.join(map(str, path))} is what the field `{field}` makes, and the overlay would replace it"
        target = moved(facts.document, ("overlay", *path), field) or {}
        help_ = f"write `{field}` in its place"
        yield Finding(("overlay", *path), message, help_, on_key=True, remove=bool(target), write=target)


def _fields_in(value: Any, at: Path) -> Iterator[Path]:
    if at in FIELDS:
        yield at
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _fields_in(one, (*at, key))


@rule("SMDP604", "overlay")
def members_of_the_request(facts: Facts) -> Iterator[Finding]:
    for one in _violations(facts):
        if one.kind == "unknown":
            yield _unknown(facts, one)


def _unknown(facts: Facts, one: Violation) -> Finding:
    at, message = ("overlay", *one.path), f"overlay: {one.message}"
    field = FIELDS.get((*one.path[:-1], one.meant)) if one.meant is not None else None
    if field is None:
        help_ = one.help or "see the API reference of CreateTrainingJob"
        return Finding(at, message, help_, on_key=True, replacement=meant(one))
    # The member that was meant is not one for the overlay either.
    name = ".".join(map(str, field))
    target = moved(facts.document, at, name) or {}
    return Finding(at, message, f"write `{name}` in its place", on_key=True, remove=bool(target), write=target)


@rule("SMDP601", "overlay")
def overlay_within_limits(facts: Facts) -> Iterator[Finding]:
    for one in _violations(facts):
        if one.kind != "unknown":
            member = ".".join(str(part) for part in one.path)
            message = f"SageMaker refuses {member}: {one.message}"
            yield Finding(("overlay", *one.path), message, instead(one), replacement=meant(one))


def _violations(facts: Facts) -> Iterator[Violation]:
    """What is wrong with the overlay alone, where no other rule speaks of it."""
    told = [*FIELDS, GROUPS]
    for one in walk(facts.spec.overlay):
        missing_here = one.kind == "required" and one.path in MADE
        if not missing_here and not any(one.path[: len(path)] == path for path in told):
            yield one
