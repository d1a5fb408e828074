"""The source of each value of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from smdp_launch.jobfile.model.section import Section
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import ConfigSource, Document, Location


@dataclass(frozen=True)
class Origin:
    """The origin of one value.

    Args:
        place: file:line:column, the flag or the variable; None for a built-in default and for a value of a mapping.
    """

    key: str
    value: Any
    source: ConfigSource
    place: str | None

    def to_json(self) -> dict[str, Any]:
        return {"key": self.key, "value": self.value, "layer": self.source.value, "place": self.place}


def origins(spec: JobSpec, document: Document) -> tuple[Origin, ...]:
    """Every value of the job, in the order of the schema, except empty built-in defaults."""
    return tuple(
        _origin(document, at, value)
        for at, value in _leaves(spec, ())
        if document.is_written(at) or value not in (None, {}, [])
    )


def _leaves(section: Section, at: Location) -> Iterator[tuple[Location, Any]]:
    for name, info in type(section).model_fields.items():
        if info.deprecated:
            continue
        yield from _values(getattr(section, name), (*at, info.alias or name))


def _values(value: Any, at: Location) -> Iterator[tuple[Location, Any]]:
    if isinstance(value, Section):
        yield from _leaves(value, at)
    elif isinstance(value, dict) and any(isinstance(one, Section) for one in value.values()):
        for name, section in value.items():
            yield from _leaves(section, (*at, name))
    elif isinstance(value, dict) and len(at) <= 2 and value:
        for name, one in value.items():
            yield (*at, name), one
    else:
        yield at, value


def _origin(document: Document, at: Location, value: Any) -> Origin:
    source = document.source_of(at)
    key = ".".join(str(part) for part in at)
    if source in {ConfigSource.BUILT_IN, ConfigSource.PYTHON}:
        return Origin(key, value, source, None)
    span = document.entry(at).value
    # A flag or a variable has no lines: its name is the place.
    return Origin(key, value, source, span.file if source.is_transient else str(span))
