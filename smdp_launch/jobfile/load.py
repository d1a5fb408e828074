"""A document to a JobSpec, or to as much of one as is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Document, Location


@dataclass(frozen=True)
class Loaded:
    """A JobSpec that may have holes.

    ``spec`` is complete when ``bad`` is empty. Otherwise fields at the locations in ``bad`` hold None, whatever their
    type says: ask ``has`` before reading one. None of ``spec`` itself if the file is no mapping at all.
    """

    document: Document
    spec: JobSpec | None
    bad: frozenset[Location]

    def has(self, *location: str) -> bool:
        """Is the field at ``location``, and everything it stands in, free of schema errors?

        A list with a faulty item is faulty; a mapping of named things is not, its faulty members are left out.
        """
        above = (location[:length] for length in range(len(location) + 1))
        return (
            self.spec is not None and location not in self._faulty_lists and not any(one in self.bad for one in above)
        )

    @cached_property
    def _faulty_lists(self) -> frozenset[Location]:
        return frozenset(one[:at] for one in self.bad for at, part in enumerate(one) if isinstance(part, int))


def load(document: Document) -> tuple[Loaded, list[Diagnostic]]:
    if not document.data:
        return Loaded(document, None, frozenset()), []
    try:
        spec = JobSpec.model_validate(document.data)
        details: list[ErrorDetails] = []
    except ValidationError as error:
        spec = None
        details = error.errors(include_url=False)
    empty = list(_left_empty(document))
    if spec is not None and not empty and not document.unresolved:
        return Loaded(document, spec.read_from(document), frozenset()), []
    from smdp_launch.jobfile.model.schema_errors import diagnose, empty_value, location_of, meant_fields

    wrong = frozenset(location_of(one) for one in details)
    empty = [at for at in empty if at not in wrong]
    bad = wrong | document.unresolved | frozenset(empty) | meant_fields(document, details)
    # What follows from a variable that is not set is not told again.
    own = [one for one in details if not any(location_of(one)[: len(at)] == at for at in document.unresolved)]
    found = [*diagnose(document, own), *(empty_value(document, at) for at in empty)]
    return Loaded(document, _partial(JobSpec, document.data, bad, ()), bad), found


def _left_empty(document: Document) -> Iterator[Location]:
    """Fields with nothing behind their colon. To YAML that is null, to a person who wrote `spot:` it is not."""
    for at, entry in document.entries.items():
        if entry.is_empty and str(at[-1]) in schema.known_keys(at[:-1], document.data):
            yield at


def _partial(model: type[BaseModel], data: Mapping[str, Any], bad: frozenset[Location], at: Location) -> Any:
    """A model without validation: what the file says where that is sound, defaults where it says nothing, else None.

    Sound because the models are strict: a valid value is the value that was read.
    """
    values: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        key = info.alias or name
        here = (*at, key)
        if here in bad:
            values[name] = None
        elif key in data:
            values[name] = _partial_value(info.annotation, data[key], bad, here)
        else:
            values[name] = info.get_default(call_default_factory=True)
    return model.model_construct(**values)


def _partial_value(annotation: Any, value: Any, bad: frozenset[Location], at: Location) -> Any:
    model = schema.model_of(annotation, value)
    if model is not None and isinstance(value, dict):
        return _partial(model, value, bad, at)
    inner = schema.element(annotation)
    if inner is not None and isinstance(value, dict):
        return {key: _partial_value(inner, one, bad, (*at, key)) for key, one in value.items() if (*at, key) not in bad}
    return value
