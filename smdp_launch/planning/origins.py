"""Where each value of a job came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobfile.model.section import Section
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Document, Layer, Location


@dataclass(frozen=True)
class Origin:
    """One value. ``place`` is file:line:column, the flag or the variable; None for what is built in or a
    mapping says."""

    key: str
    value: Any
    layer: Layer
    place: str | None

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "value": self.value, "layer": self.layer.value, "place": self.place}


def origins(spec: JobSpec, document: Document) -> tuple[Origin, ...]:
    """Every value of the job, in the order of the schema; those that nobody gave and that mean "none" are left out."""
    return tuple(
        _origin(document, at, value)
        for at, value in _leaves(spec, ())
        if document.written(at) or value not in (None, {}, [])
    )


def _leaves(section: Section, at: Location) -> Iterator[tuple[Location, Any]]:
    for name, info in type(section).model_fields.items():
        if info.deprecated:
            continue
        yield from _values(getattr(section, name), (*at, info.alias or name))


def _values(value: Any, at: Location) -> Iterator[tuple[Location, Any]]:
    if isinstance(value, Section):
        yield from _leaves(value, at)
    elif isinstance(value, dict) and any(
        isinstance(one, S3Channel | FsxChannel | EfsChannel) for one in value.values()
    ):
        for name, channel in value.items():
            yield from _leaves(channel, (*at, name))
    elif isinstance(value, dict) and len(at) <= 2 and value:
        for name, one in value.items():
            yield (*at, name), one
    else:
        yield at, value


def _origin(document: Document, at: Location, value: Any) -> Origin:
    layer = document.origin(at)
    key = ".".join(str(part) for part in at)
    if layer in {Layer.BUILT_IN, Layer.PYTHON}:
        return Origin(key, value, layer, None)
    span = document.entry(at).value
    # A flag or a variable is one line: its name is the place.
    return Origin(key, value, layer, span.file if layer in {Layer.FLAG, Layer.ENVIRONMENT, Layer.AWS} else str(span))
