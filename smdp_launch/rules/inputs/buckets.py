"""Locations in S3 whose text cannot be what was meant, although the form of a location is right."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.catalog import buckets
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.channels import S3Channel
from smdp_launch.jobfile.model.derived import is_variable
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobfile.yaml.text import written
from smdp_launch.request.names import S3Location
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.rules.inputs.locations import locations
from smdp_launch.units import listed

_WILDCARD = re.compile(r"[*?]")


@rule("SMDP424")
def bucket_name(facts: Facts) -> Iterator[Finding]:
    named: dict[str, list[Location]] = {}
    for at, uri in locations(facts):
        named.setdefault(S3Location.parse(uri).bucket, []).append(at)
    for bucket, places in named.items():
        objection = buckets.objection(bucket)
        if objection is not None:
            message = f"S3 has no bucket {bucket}: {objection}"
            yield Finding(places[0], message, "name a bucket of yours", also=tuple(places[1:]))


@rule("SMDP425", severity=Severity.WARNING)
def blank_at_an_end(facts: Facts) -> Iterator[Finding]:
    for at, uri in locations(facts):
        location = S3Location.parse(uri)
        key = location.key.strip()
        if key != location.key:
            meant = f"s3://{location.bucket}/{key}"
            message = f"the blank at {_ends(location.key)} of the key is a part of it: S3 looks for that very name"
            yield Finding(at, message, f"write {meant}", replacement=_replacement(facts, at, meant))


def _ends(key: str) -> str:
    return listed(
        [end for end, has in (("the beginning", key != key.lstrip()), ("the end", key != key.rstrip())) if has]
    )


@rule("SMDP426", severity=Severity.WARNING)
def wildcard(facts: Facts) -> Iterator[Finding]:
    for at, uri in locations(facts):
        location = S3Location.parse(uri)
        found = _WILDCARD.search(location.key)
        if found is None:
            continue
        message = f"{found.group()} stands for itself: SageMaker expands no wildcards"
        prefix, rest = location.key[: found.start()], location.key[found.start() :]
        meant = f"s3://{location.bucket}/{prefix}"
        if not rest.strip("*"):
            is_prefix = _reads_a_prefix(facts, at)
            why = ", a prefix that takes in every object whose name begins so" if is_prefix else ""
            yield Finding(at, message, f"write {meant}{why}", replacement=_replacement(facts, at, meant))
        elif _reads_a_prefix(facts, at):
            yield Finding(at, message, "name a prefix that all objects begin with, or a manifest that lists them")
        else:
            yield Finding(at, message, "name one location")


def _reads_a_prefix(facts: Facts, at: Location) -> bool:
    channel = facts.spec.channels.get(str(at[1])) if at[0] == "channels" else None
    has = channel is not None and facts.loaded.has(*map(str, at[:-1]), "data_type")
    return has and isinstance(channel, S3Channel) and channel.data_type == "S3Prefix"


def _replacement(facts: Facts, at: Location, meant: str) -> str | None:
    return None if is_variable(facts.document, at) else written(meant)
