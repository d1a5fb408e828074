"""Names and regions of buckets; keys in S3 that are well-formed but that cannot be what the user meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from smdp_launch.catalog import buckets
from smdp_launch.catalog.regions import region_known, regions
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.channels import S3Channel
from smdp_launch.jobfile.model.derived import is_variable
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.jobfile.yaml.text import to_yaml
from smdp_launch.request.names import S3Location
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.inputs.locations import locations
from smdp_launch.units import listed

_WILDCARD = re.compile(r"[*?]")


@rule("SMDP424")
def bucket_name(facts: Facts) -> Iterator[Problem]:
    by_bucket: dict[str, list[Location]] = {}
    for at, uri in locations(facts):
        by_bucket.setdefault(S3Location.parse(uri).bucket, []).append(at)
    for bucket, places in by_bucket.items():
        reason = buckets.name_problem(bucket)
        if reason is not None:
            message = f"S3 has no bucket {bucket}: {reason}"
            yield Problem(places[0], message, "name one of your buckets", also=tuple(places[1:]))


@rule("SMDP413", "region", severity=Severity.WARNING)
def bucket_region(facts: Facts) -> Iterator[Problem]:
    region = facts.spec.region
    if not region_known(region):
        return
    by_region: dict[str, list[Location]] = {}
    for at, uri in locations(facts):
        bucket = S3Location.parse(uri).bucket
        in_name = (one for one in regions() if re.search(rf"(^|[-.]){one}($|[-.])", bucket))
        other = buckets.region(bucket) or next(in_name, None)
        if other not in (None, region):
            by_region.setdefault(other, []).append(at)
    for other, places in by_region.items():
        what = "the bucket's name says" if len(places) == 1 else "these buckets' names say"
        fields = "" if len(places) == 1 else f": {listed(['.'.join(map(str, at)) for at in places])}"
        message = f"{what} {other}, but the job runs in {region}{fields}"
        help_ = f"name a bucket in {region}: SageMaker refuses buckets of other regions"
        yield Problem(places[0], message, help_, also=tuple(places[1:]))


@rule("SMDP425", severity=Severity.WARNING)
def no_blank_around_key(facts: Facts) -> Iterator[Problem]:
    for at, uri in locations(facts):
        location = S3Location.parse(uri)
        key = location.key.strip()
        if key != location.key:
            meant = f"s3://{location.bucket}/{key}"
            message = f"the key has a blank at {_ends(location.key)}: in S3 the blank is part of the name"
            yield Problem(at, message, f"write {meant}", replacement=_replacement(facts, at, meant))


def _ends(key: str) -> str:
    return listed(
        [end for end, has in (("the beginning", key != key.lstrip()), ("the end", key != key.rstrip())) if has]
    )


@rule("SMDP426", severity=Severity.WARNING)
def no_wildcards(facts: Facts) -> Iterator[Problem]:
    for at, uri in locations(facts):
        location = S3Location.parse(uri)
        match = _WILDCARD.search(location.key)
        if match is None:
            continue
        message = f"{match.group()} is part of the name: SageMaker does not expand wildcards"
        prefix, rest = location.key[: match.start()], location.key[match.start() :]
        meant = f"s3://{location.bucket}/{prefix}"
        if not rest.strip("*"):
            is_prefix = _reads_a_prefix(facts, at)
            why = ", a prefix that includes every object whose name begins with it" if is_prefix else ""
            yield Problem(at, message, f"write {meant}{why}", replacement=_replacement(facts, at, meant))
        elif _reads_a_prefix(facts, at):
            yield Problem(at, message, "name a common prefix of the objects, or a manifest that lists them")
        else:
            yield Problem(at, message, "name one location")


def _reads_a_prefix(facts: Facts, at: Location) -> bool:
    channel = facts.spec.channels.get(str(at[1])) if at[0] == "channels" else None
    has = channel is not None and facts.loaded.has(*map(str, at[:-1]), "data_type")
    return has and isinstance(channel, S3Channel) and channel.data_type == "S3Prefix"


def _replacement(facts: Facts, at: Location, meant: str) -> str | None:
    return None if is_variable(facts.document, at) else to_yaml(meant)
