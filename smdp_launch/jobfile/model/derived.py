"""What an edit may write because it follows from the rest of the job file."""

from __future__ import annotations

import re
from typing import Any

from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.model.types import DAY
from smdp_launch.jobfile.yaml.document import Document, Location
from smdp_launch.jobfile.yaml.text import written

_HOUR = 3600


def longest_wait(max_run: int) -> int:
    """A ``max_wait`` that leaves an hour for waiting."""
    return min(max_run + _HOUR, 28 * DAY)


def checkpoints_beside(document: Document) -> str | None:
    """A location for checkpoints below the results of the job, as it may be written; None where none can be said.

    Variables in it stay variables. A location that a flag gave for this once is not written into a file.
    """
    at = ("output", "s3")
    entry = document.entries.get(at)
    if entry is None or document.origin(at).transient or not schema.accepts(at, document.data, value_at(document, at)):
        return None
    found = entry.text if "${" in entry.text else str(value_at(document, at))
    return f"{found.rstrip('/')}/checkpoints"


def moved(document: Document, location: Location, field_path: str) -> dict[Location, str] | None:
    """What to write where the key at ``location`` is removed, because its value belongs to the field of that path.

    None where the value does not fit there, or the section would first come to be: that would say more than the key.
    """
    target: Location = tuple(field_path.split("."))
    source = document.source(location)
    is_there = document.written(target) or (len(target) > 1 and not document.written(target[:-1]))
    if source is None or is_there or not re.fullmatch(r"[a-z0-9_.]+", field_path):
        return None
    value = value_at(document, location)
    return {target: source} if schema.accepts(target, document.data, value) else None


def is_variable(document: Document, location: Location) -> bool:
    """Whether the file has a variable where its value is, so that the value is not to be written in its place."""
    return "${" in document.entry(location).text


def as_written(text: str) -> str:
    """``text`` as YAML within brackets. It comes from a file, so a ``${NAME}`` in it is meant."""
    return written(text).replace("$${", "${")


def value_at(document: Document, location: Location, default: Any = None) -> Any:
    """What the file, with what stands before it, has there."""
    value: Any = document.data
    for part in location:
        value = value.get(part, default) if isinstance(value, dict) else default
    return value
