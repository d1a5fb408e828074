"""Values that an edit may write because they follow from the rest of the job file."""

from __future__ import annotations

import re

from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.model.types import DAY
from smdp_launch.jobfile.yaml.document import Document, Location
from smdp_launch.jobfile.yaml.text import to_yaml

_HOUR = 3600


def default_max_wait(max_run: int) -> int:
    """Seconds for ``spot.max_wait``: ``max_run`` and one hour to wait for capacity."""
    return min(max_run + _HOUR, 28 * DAY)


def default_checkpoint_location(document: Document) -> str | None:
    """A location for checkpoints below ``output.s3``, as YAML text; None if that is not valid or not in a file.

    References to variables stay references. A location from a flag is not written into a file.
    """
    at = ("output", "s3")
    entry = document.entries.get(at)
    value = document.value(at)
    if entry is None or entry.source.is_transient or not schema.accepts(at, document.data, value):
        return None
    location = entry.text if "${" in entry.text else str(value)
    return f"{location.rstrip('/')}/checkpoints"


def moved_value(document: Document, location: Location, field_path: str) -> dict[Location, str] | None:
    """What to write if the value at ``location`` moves to the field of ``field_path``.

    None if the field does not accept the value, is set already, or its section is not in the file: a new section would
    mean more than the key.
    """
    target: Location = tuple(field_path.split("."))
    text, value = document.one_line_yaml(location), document.value(location)
    is_set = document.is_written(target) or (len(target) > 1 and not document.is_written(target[:-1]))
    if text is None or is_set or not re.fullmatch(r"[a-z0-9_.]+", field_path):
        return None
    return {target: text} if schema.accepts(target, document.data, value) else None


def is_variable(document: Document, location: Location) -> bool:
    """Whether the file has a reference to a variable at ``location``, which no edit may replace by its value."""
    return "${" in document.entry(location).text


def bracket_text(text: str) -> str:
    """``text`` of a file as YAML between brackets; ``${NAME}`` in it stays a reference."""
    return to_yaml(text).replace("$${", "${")
