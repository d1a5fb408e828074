"""Placeholders: values that the user fills in before a launch on AWS. Plans and local runs accept them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from smdp_launch.catalog.placeholders import is_placeholder, of_hyperparameter
from smdp_launch.diagnostics import Span
from smdp_launch.jobfile.model.channels import KINDS
from smdp_launch.jobfile.yaml.document import ConfigSource, Location
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.units import count, listed

_BUCKET = "write the name of your bucket"
_KEY = "write the id, alias or ARN of your KMS key"


class Placeholder(NamedTuple):
    """A value to fill in.

    Args:
        field: such as ``channels.train.s3``.
        span: its place; None if it is in no file.
    """

    field: str
    text: str
    span: Span | None

    def to_json(self) -> dict[str, object]:
        return {"field": self.field, "text": self.text, "span": self.span.to_json() if self.span is not None else None}


def placeholders_of(facts: Facts) -> Iterator[Placeholder]:
    """The values to fill in; the values of the account come first."""
    for at, _ in _unfilled(facts):
        entry = facts.document.entry(at)
        yield Placeholder(_name(at), entry.text, entry.value if entry.source is not ConfigSource.PYTHON else None)


def to_fill_in(placeholders: Sequence[Placeholder]) -> str:
    """Such as ``2 values to fill in before AWS: role, region``."""
    return f"{count(len(placeholders), 'value')} to fill in before AWS: {', '.join(one.field for one in placeholders)}"


@rule("SMDP801", on_launch=True)
def unfilled_placeholders(facts: Facts) -> Iterator[Problem]:
    by_help: dict[str, list[Location]] = {}
    for at, help_ in _unfilled(facts):
        by_help.setdefault(help_, []).append(at)
    for help_, fields in by_help.items():
        names = listed([_name(at) for at in fields])
        message = f"{names} {'is a placeholder' if len(fields) == 1 else 'are placeholders'}"
        yield Problem(fields[0], message, help_, also=tuple(fields[1:]))


def _unfilled(facts: Facts) -> Iterator[tuple[Location, str]]:
    yield from ((at, help_) for at, value, help_ in _own_values(facts) if value is not None and is_placeholder(value))
    for name, value in facts.spec.script.hyperparameters.items() if facts.has("script.hyperparameters") else ():
        if value == of_hyperparameter(name):
            yield ("script", "hyperparameters", name), "write the value for the script"


def _own_values(facts: Facts) -> Iterator[tuple[Location, str | None, str]]:
    """The fields that name resources of the user's account: field, value, and help."""
    spec = facts.spec
    if facts.has("image"):
        yield ("image",), spec.image, "write the URI of the image that you pushed"
    if facts.has("role"):
        yield ("role",), spec.role, "write the ARN of your execution role"
    if facts.has("region"):
        yield ("region",), spec.region, "write your region, such as us-east-1"
    serve = facts.spec.serve if facts.has("serve") else None
    if serve is not None and facts.has("serve.image"):
        yield ("serve", "image"), serve.image, "write the URI of the image that serves the model"
    if serve is not None and facts.has("serve.expiry_role"):
        yield ("serve", "expiry_role"), serve.expiry_role, "write the ARN of a role for EventBridge Scheduler"
    if serve is not None and facts.has("serve.input"):
        yield ("serve", "input"), serve.input, _BUCKET
    yield from _locations(facts)
    yield from _network(facts)
    for key in ("volume_key", "output_key"):
        if facts.has(f"encryption.{key}"):
            yield ("encryption", key), getattr(spec.encryption, key), _KEY


def _locations(facts: Facts) -> Iterator[tuple[Location, str | None, str]]:
    for name, channel in facts.channels():
        for kind in KINDS:
            if hasattr(channel, kind) and facts.loaded.has("channels", name, kind):
                yield ("channels", name, kind), getattr(channel, kind), _BUCKET if kind == "s3" else _file_system(kind)
    if facts.has("output.s3"):
        yield ("output", "s3"), facts.spec.output.s3, _BUCKET
    if facts.spec.checkpoint is not None and facts.has("checkpoint.s3"):
        yield ("checkpoint", "s3"), facts.spec.checkpoint.s3, _BUCKET
    board = facts.spec.tracking.tensorboard if facts.has("tracking.tensorboard.s3") else None
    if board is not None:
        yield ("tracking", "tensorboard", "s3"), board.s3, _BUCKET


def _file_system(kind: str) -> str:
    return f"write the id of your {'FSx for Lustre' if kind == 'fsx' else 'EFS'} file system"


def _network(facts: Facts) -> Iterator[tuple[Location, str | None, str]]:
    network = facts.spec.network
    for key, what in (("subnets", "a subnet"), ("security_groups", "a security group")):
        for index, value in enumerate(getattr(network, key) or () if facts.has(f"network.{key}") else ()):
            yield ("network", key, index), value, f"write the id of {what} of your VPC"


def _name(at: Location) -> str:
    return ".".join(str(part) for part in at)
