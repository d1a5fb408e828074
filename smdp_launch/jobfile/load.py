"""A document to a JobSpec, or to its valid part."""

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
    """A JobSpec that may be incomplete.

    Args:
        spec: complete if ``invalid`` is empty; None if the file is not a mapping.
        invalid: the locations of errors. These fields of ``spec`` are None, whatever their type is: call ``has``
            before you read a field.
    """

    document: Document
    spec: JobSpec | None
    invalid: frozenset[Location]

    def has(self, *location: str) -> bool:
        """Whether the field at ``location``, and everything around it, is free of schema errors.

        A list with an invalid item is invalid, and so is ``compute.other_groups``, whose hosts are counted together.
        Any other mapping with names that users choose is not: only the invalid entry is left out.
        """
        above = (location[:length] for length in range(len(location) + 1))
        is_invalid = location in self._invalid_lists or any(one in self.invalid for one in above)
        return self.spec is not None and not is_invalid

    @cached_property
    def _invalid_lists(self) -> frozenset[Location]:
        lists = {one[:at] for one in self.invalid for at, part in enumerate(one) if isinstance(part, int)}
        return frozenset(lists | {one[:2] for one in self.invalid if one[:2] == ("compute", "other_groups")})


def load(document: Document) -> tuple[Loaded, list[Diagnostic]]:
    """The JobSpec of ``document``, and its schema errors."""
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
    invalid = wrong | document.unresolved | frozenset(empty) | meant_fields(document, details)
    # An error that follows from a variable that is not set is not reported.
    own = [one for one in details if not any(location_of(one)[: len(at)] == at for at in document.unresolved)]
    diagnostics = [*diagnose(document, own), *(empty_value(document, at) for at in empty)]
    return Loaded(document, _partial(JobSpec, document.data, invalid, ()), invalid), diagnostics


def _left_empty(document: Document) -> Iterator[Location]:
    """Fields with nothing after their colon. YAML reads null, which is not what a user means with `spot:`."""
    for at, entry in document.entries.items():
        if entry.is_empty and str(at[-1]) in schema.known_keys(at[:-1], document.data):
            yield at


def _partial(model: type[BaseModel], data: Mapping[str, Any], invalid: frozenset[Location], at: Location) -> Any:
    """A model without validation: the file's valid values, None for invalid ones, and defaults for the rest.

    This works because the models are strict: they do not convert a valid value.
    """
    values: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        key = info.alias or name
        here = (*at, key)
        if here in invalid:
            values[name] = None
        elif key in data:
            values[name] = _partial_value(info.annotation, data[key], invalid, here)
        else:
            values[name] = info.get_default(call_default_factory=True)
    return model.model_construct(**values)


def _partial_value(annotation: Any, value: Any, invalid: frozenset[Location], at: Location) -> Any:
    model = schema.model_of(annotation, value)
    if model is not None and isinstance(value, dict):
        return _partial(model, value, invalid, at)
    inner = schema.element(annotation)
    if inner is not None and isinstance(value, dict):
        valid = {key: one for key, one in value.items() if (*at, key) not in invalid}
        return {key: _partial_value(inner, one, invalid, (*at, key)) for key, one in valid.items()}
    return value
