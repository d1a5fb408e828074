"""Locations in S3 and folders in the container that must not overlap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.derived import bracket_text, default_checkpoint_location
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.rules.base.facts import Facts, Problem, rule

#: Folders of the container that SageMaker fills or uploads itself.
_PLATFORM = ("/opt/ml/input", "/opt/ml/model", "/opt/ml/output", "/opt/ml/code")
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var")


def locations(facts: Facts) -> Iterator[tuple[Location, str]]:
    """The locations in S3 that the job reads and writes, with their fields."""
    for name, channel in facts.s3_channels("s3"):
        yield ("channels", name, "s3"), channel.s3
    yield from _written_locations(facts)


def _written_locations(facts: Facts) -> Iterator[tuple[Location, str]]:
    if facts.has("output.s3"):
        yield ("output", "s3"), facts.spec.output.s3
    if facts.has("checkpoint.s3") and facts.spec.checkpoint is not None:
        yield ("checkpoint", "s3"), facts.spec.checkpoint.s3
    if facts.has("tracking.tensorboard.s3") and facts.spec.tracking.tensorboard is not None:
        yield ("tracking", "tensorboard", "s3"), facts.spec.tracking.tensorboard.s3


@rule("SMDP416", severity=Severity.WARNING)
def outputs_are_outside_channels(facts: Facts) -> Iterator[Problem]:
    for at, uri in _written_locations(facts):
        for name, channel in facts.s3_channels("s3", "data_type"):
            if channel.data_type == "S3Prefix" and _within(uri, channel.s3):
                written = ".".join(map(str, at[:-1]))
                message = f"{written} lies within the data of channel {name}, so the next job trains on it too"
                yield Problem(at, message, f"choose a location outside {channel.s3}")
                break


@rule("SMDP416", "output.s3", "checkpoint.s3", severity=Severity.WARNING)
def checkpoints_are_outside_output(facts: Facts) -> Iterator[Problem]:
    output, checkpoint = facts.spec.output.s3, facts.spec.checkpoint
    if checkpoint is not None and _folder(checkpoint.s3) == _folder(output):
        message = "checkpoints and results have the same location: a restart copies the results to every host too"
        folder = default_checkpoint_location(facts.document)
        help_ = f"write {_folder(output)}checkpoints"
        yield Problem(("checkpoint", "s3"), message, help_, replacement=bracket_text(folder) if folder else None)


@rule("SMDP416", "checkpoint.s3", "checkpoint.shared", severity=Severity.WARNING)
def shared_checkpoints_are_alone(facts: Facts) -> Iterator[Problem]:
    checkpoint = facts.spec.checkpoint
    if checkpoint is None or not checkpoint.shared:
        return
    for at, uri in locations(facts):
        inside = _within(uri, checkpoint.s3) and at != ("checkpoint", "s3")
        if inside and (at[0] != "output" or _folder(uri) != _folder(checkpoint.s3)):
            name = ".".join(map(str, at[:-1]))
            message = f"{name} lies within the checkpoints, so every start copies it to every host"
            help_ = "choose a location for the checkpoints that contains nothing else, or remove `shared`"
            yield Problem(("checkpoint", "s3"), message, help_)
            break


def _folder(uri: str) -> str:
    return uri.rstrip("/") + "/"


def _within(uri: str, prefix: str) -> bool:
    return _folder(uri).startswith(_folder(prefix))


@rule("SMDP417", "checkpoint.path")
def checkpoint_path(facts: Facts) -> Iterator[Problem]:
    checkpoint = facts.spec.checkpoint
    if checkpoint is None:
        return
    path = PurePosixPath(checkpoint.path)
    reserved = next((one for one in (*_PLATFORM, *_SYSTEM) if _overlaps(path, PurePosixPath(one))), None)
    if ".." in path.parts or reserved is not None:
        what = f"overlaps {reserved}, which {'SageMaker uses' if reserved in _PLATFORM else 'belongs to the system'}"
        message = f"the checkpoint folder {path} {what if reserved else 'contains ..'}"
        yield Problem(("checkpoint", "path"), message, "remove it to use /opt/ml/checkpoints", remove=True)


def _overlaps(one: PurePosixPath, other: PurePosixPath) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
