"""The edits of one fix in the files of a job: all of them, or none."""

from __future__ import annotations

from collections.abc import Mapping

from smdp_launch.diagnostics import Edit
from smdp_launch.edits import apply_edits
from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.yaml.document import Document, Location


def edits_for(
    document: Document,
    at: Location,
    *,
    replacement: str | None = None,
    remove: bool = False,
    write: Mapping[Location, str] | None = None,
    on_key: bool = False,
) -> tuple[Edit, ...]:
    """The edits of one fix; empty if a part of it is impossible, or two parts change the same text.

    Args:
        at: the entry that ``replacement`` and ``remove`` change.
        replacement: one line of YAML for its value, or its key with ``on_key``.
        remove: remove the entry.
        write: other values to write, as YAML, by their locations.
    """
    parts = [document.replacing(at, replacement, on_key=on_key)] if replacement is not None else []
    parts += [document.removing(at)] if remove else []
    parts += [document.writing(where, text, _order(document, where)) for where, text in (write or {}).items()]
    edits = tuple(dict.fromkeys(one for part in parts for one in part))
    return edits if all(parts) and _are_compatible(document, edits) else ()


def _order(document: Document, location: Location) -> list[str]:
    """The known keys of the mapping to which a value at ``location`` has to be added."""
    parent = location[:-1]
    while parent and not document.is_written(parent):
        parent = parent[:-1]
    return schema.known_keys(parent, document.data)


def _are_compatible(document: Document, edits: tuple[Edit, ...]) -> bool:
    for file in {one.file for one in edits} if len(edits) > 1 else ():
        try:
            apply_edits(document.layouts[file].text, [one for one in edits if one.file == file])
        except ValueError:
            return False
    return True
