"""Places in S3 and in the container that must not lie in one another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from smdp_launch.catalog import buckets
from smdp_launch.catalog.regions import region_known, regions
from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.derived import as_written, checkpoints_beside
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.names import S3Location
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.units import listed

#: Folders of the container that SageMaker fills or packs itself.
_PLATFORM = ("/opt/ml/input", "/opt/ml/model", "/opt/ml/output", "/opt/ml/code")
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var")


def locations(facts: Facts) -> Iterator[tuple[Location, str]]:
    """Those in S3 that the job reads and writes, with their fields."""
    for name, channel in facts.s3_channels("s3"):
        yield ("channels", name, "s3"), channel.s3
    yield from _written_locations(facts)


def _written_locations(facts: Facts) -> Iterator[tuple[Location, str]]:
    if facts.has("output.s3"):
        yield ("output", "s3"), facts.spec.output.s3
    if facts.has("checkpoint.s3") and facts.spec.checkpoint is not None:
        yield ("checkpoint", "s3"), facts.spec.checkpoint.s3


@rule("SMDP413", "region", severity=Severity.WARNING)
def bucket_region(facts: Facts) -> Iterator[Finding]:
    region = facts.spec.region
    if not region_known(region):
        return
    others: dict[str, list[Location]] = {}
    for at, uri in locations(facts):
        bucket = S3Location.parse(uri).bucket
        told = (one for one in regions() if re.search(rf"(^|[-.]){one}($|[-.])", bucket))
        named = buckets.region(bucket) or next(told, None)
        if named not in (None, region):
            others.setdefault(named, []).append(at)
    for named, places in others.items():
        what = "the bucket's name says" if len(places) == 1 else "these buckets' names say"
        fields = "" if len(places) == 1 else f": {listed(['.'.join(map(str, at)) for at in places])}"
        message = f"{what} {named}, and the job runs in {region}{fields}"
        help_ = f"name a bucket in {region}: SageMaker refuses one of another region, and transfers cost"
        yield Finding(places[0], message, help_, also=tuple(places[1:]))


@rule("SMDP416", severity=Severity.WARNING)
def written_within_channels(facts: Facts) -> Iterator[Finding]:
    for at, uri in _written_locations(facts):
        for name, channel in facts.s3_channels("s3", "data_type"):
            if channel.data_type == "S3Prefix" and _within(uri, channel.s3):
                message = f"{at[0]} is written into what channel {name} reads, so the next job trains on it too"
                yield Finding(at, message, f"choose a location outside {channel.s3}")
                break


@rule("SMDP416", "output.s3", "checkpoint.s3", severity=Severity.WARNING)
def checkpoints_apart_from_output(facts: Facts) -> Iterator[Finding]:
    output, checkpoint = facts.spec.output.s3, facts.spec.checkpoint
    if checkpoint is not None and _folder(checkpoint.s3) == _folder(output):
        message = "checkpoints and results share one location: a restart copies the results to every host as well"
        folder = checkpoints_beside(facts.document)
        help_ = f"write {_folder(output)}checkpoints"
        yield Finding(("checkpoint", "s3"), message, help_, replacement=as_written(folder) if folder else None)


def _folder(uri: str) -> str:
    return uri.rstrip("/") + "/"


def _within(uri: str, prefix: str) -> bool:
    return _folder(uri).startswith(_folder(prefix))


@rule("SMDP417", "checkpoint.path")
def checkpoint_path(facts: Facts) -> Iterator[Finding]:
    checkpoint = facts.spec.checkpoint
    if checkpoint is None:
        return
    path = PurePosixPath(checkpoint.path)
    taken = next((one for one in (*_PLATFORM, *_SYSTEM) if _overlaps(path, PurePosixPath(one))), None)
    if ".." in path.parts or taken is not None:
        what = f"overlaps {taken}, which is " + ("SageMaker's own" if taken in _PLATFORM else "the system's")
        message = f"the checkpoint folder {path} {what if taken else 'goes upwards with ..'}"
        yield Finding(("checkpoint", "path"), message, "leave it out for /opt/ml/checkpoints", remove=True)


def _overlaps(one: PurePosixPath, other: PurePosixPath) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
