"""A document to a JobSpec, or to its valid part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobfile.yaml.document import Document, Entry, Location


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
        if not self.invalid:
            return self.spec is not None
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
    empty = dict(_left_empty(document))
    if spec is not None and not empty and not document.unresolved:
        return Loaded(document, spec.read_from(document), frozenset()), []
    from smdp_launch.jobfile.model.schema_errors import diagnose, empty_value, meant_fields

    errors = schema.errors_of(document, details)
    wrong = frozenset(one.at for one in errors)
    empty = {at: entry for at, entry in empty.items() if at not in wrong}
    invalid = wrong | document.unresolved | frozenset(empty) | meant_fields(document, errors)
    # An error that follows from a variable that is not set is not reported.
    own = [one for one in errors if not any(one.at[: len(at)] == at for at in document.unresolved)]
    diagnostics = [*(empty_value(at, entry) for at, entry in empty.items()), *diagnose(document, own)]
    return Loaded(document, schema.without_errors(JobSpec, document.data, invalid, ()), invalid), diagnostics


def _left_empty(document: Document) -> Iterator[tuple[Location, Entry]]:
    """Fields with nothing after their colon. YAML reads null, which is not what a user means with `spot:`."""
    for at, entry in document.entries.items():
        if entry.is_empty and document.value(at) is None and str(at[-1]) in schema.known_keys(at[:-1], document.data):
            yield at, entry
