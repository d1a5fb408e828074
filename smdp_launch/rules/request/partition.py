"""Partition and region: the ARNs in a job file must match the job's region."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from smdp_launch.catalog.placeholders import is_placeholder
from smdp_launch.catalog.regions import partition
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.units import listed

_ARN = re.compile(r"arn:(?P<partition>aws[a-z-]*):(?P<service>[a-z0-9-]+):(?P<region>[a-z0-9-]*):")
#: Services whose resources a job uses in its own region only.
_REGIONAL = ("kms", "sagemaker")


class _Place(NamedTuple):
    """The place in an ARN; the region is empty if the resource has none or may be in any region."""

    partition: str
    region: str
    is_key: bool


@rule("SMDP609", "region")
def arns_match_the_region(facts: Facts) -> Iterator[Problem]:
    region = facts.spec.region
    if is_placeholder(region):
        return
    elsewhere: dict[_Place, list[Location]] = {}
    for at, arn in _arns(facts):
        place = _place(arn)
        if place is not None and not is_placeholder(arn) and not _agrees(place, region):
            elsewhere.setdefault(place, []).append(at)
    for place, fields in elsewhere.items():
        names, verb = listed([".".join(map(str, at)) for at in fields]), "is" if len(fields) == 1 else "are"
        if place.partition != partition(region):
            message = f"{names} {verb} in partition {place.partition}, but {region} is in {partition(region)}"
            help_ = f"name a resource in {partition(region)}, or choose a region of {place.partition}"
        else:
            message = f"{names} {verb} in {place.region}, but the job runs in {region}"
            replica = ", such as the replica of a multi-Region key" if place.is_key else ""
            help_ = f"name a resource in {region}{replica}, or run the job in {place.region}"
        yield Problem(fields[0], message, help_, also=tuple(fields[1:]))


def _arns(facts: Facts) -> Iterator[tuple[Location, str]]:
    if facts.has("role"):
        yield ("role",), facts.spec.role
    plan = facts.spec.compute.training_plan if facts.has("compute.training_plan") else None
    if plan is not None:
        yield ("compute", "training_plan"), plan
    for key in ("volume_key", "output_key"):
        value = getattr(facts.spec.encryption, key) if facts.has(f"encryption.{key}") else None
        if value is not None:
            yield ("encryption", key), value
    if facts.has("overlay"):
        yield from _texts(("overlay",), facts.spec.overlay)


def _texts(at: Location, value: Any) -> Iterator[tuple[Location, str]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from _texts((*at, key), one)
    if isinstance(value, str):
        yield at, value


def _place(text: str) -> _Place | None:
    match = _ARN.match(text)
    if match is None:
        return None
    service = match["service"]
    return _Place(match["partition"], match["region"] if service in _REGIONAL else "", service == "kms")


def _agrees(place: _Place, region: str) -> bool:
    return place.partition == partition(region) and place.region in ("", region)
