"""What has to change in the files of a job, as edits: all of it or nothing."""

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
    """The edits of one fix; empty where a part of it cannot be made, or two parts touch the same text.

    Args:
        at: the entry that ``replacement`` and ``remove`` are about.
        replacement: one line of YAML for its value, or its key with ``on_key``.
        remove: the entry goes.
        write: other values to write, as YAML, by their locations.
    """
    parts = [document.replacing(at, replacement, on_key=on_key)] if replacement is not None else []
    parts += [document.removing(at)] if remove else []
    parts += [document.writing(where, text, _order(document, where)) for where, text in (write or {}).items()]
    made = tuple(dict.fromkeys(one for part in parts for one in part))
    return made if all(parts) and _fit_together(document, made) else ()


def _order(document: Document, location: Location) -> list[str]:
    """The keys of the mapping that a value at ``location`` has to be added to."""
    parent = location[:-1]
    while parent and not document.written(parent):
        parent = parent[:-1]
    return schema.known_keys(parent, document.data)


def _fit_together(document: Document, edits: tuple[Edit, ...]) -> bool:
    for file in {one.file for one in edits} if len(edits) > 1 else ():
        try:
            apply_edits(document.layouts[file].text, [one for one in edits if one.file == file])
        except ValueError:
            return False
    return True
