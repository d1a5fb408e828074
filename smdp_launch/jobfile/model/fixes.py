"""The edits of one fix in the files of a job: all of them, or none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from smdp_launch.diagnostics import Edit
from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.yaml.document import Document, Location


class Fix(NamedTuple):
    """What to change in the files of a job.

    Args:
        at: the entry that ``replacement`` and ``remove`` change.
        replacement: one line of YAML for its value, or its key with ``on_key``.
        remove: remove the entry.
        write: other values to write, as YAML, by their locations.
    """

    at: Location
    replacement: str | None = None
    remove: bool = False
    write: Mapping[Location, str] = MappingProxyType({})
    on_key: bool = False


def edits_for(document: Document, fix: Fix) -> tuple[Edit, ...]:
    """The edits of a fix; empty if a part of it is impossible, or two parts change the same text."""
    orders = [schema.keys_around(where, document) for where in fix.write]
    parts = [document.replacing(fix.at, fix.replacement, on_key=fix.on_key)] if fix.replacement is not None else []
    parts += [document.removing(fix.at)] if fix.remove else []
    parts += [document.writing(*one, order) for one, order in zip(fix.write.items(), orders, strict=True)]
    edits = tuple(dict.fromkeys(one for part in parts for one in part))
    return edits if all(parts) and document.can_apply(edits) else ()
