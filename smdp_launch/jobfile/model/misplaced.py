"""Keys of the job file's top level that are indented, so that they belong to another section."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.model.schema import SchemaError
from smdp_launch.jobfile.yaml.document import Document, Location


def find(document: Document, errors: Sequence[SchemaError]) -> dict[Location, Location]:
    """From the location of each misplaced key to that of the key that it means, which is not written."""
    top = set(schema.known_keys((), document.data)) - set(document.data)
    unknown = [one.at for one in errors if one.kind == "extra_forbidden" and len(one.at) > 1 and one.at[-1] in top]
    missing = {one.at[0] for one in errors if one.kind == "missing" and len(one.at) == 1}
    found = {at: at[-1:] for at in [*unknown, *_as_names(document, missing)] if document.is_editable(at)}
    # Two keys can mean one, and nothing shows which of them.
    counts = Counter(found.values())
    return {at: target for at, target in found.items() if counts[target] == 1}


def _as_names(document: Document, missing: set[str | int]) -> list[Location]:
    """The sections among ``missing`` that are in a mapping with any names, such as ``output`` in ``channels``."""
    return [
        at
        for at in document.entries
        if len(at) > 1 and at[-1] in missing and at[0] != "overlay" and _is_section(document, at)
    ]


def _is_section(document: Document, at: Location) -> bool:
    value = document.value(at)
    is_any_name = not schema.known_keys(at[:-1], document.data)
    return is_any_name and isinstance(value, dict) and any(one in value for one in schema.known_keys(at[-1:], {}))


def diagnostic(document: Document, at: Location, code: str) -> Diagnostic:
    """The diagnostic for the misplaced key ``at``."""
    entry, key, section = document.entry(at), at[-1], ".".join(map(str, at[:-1]))
    if document.is_in_flow(at):
        message, help_ = f"{key} is inside the braces of {section}", f"move {key} out of the braces"
    else:
        message = f"{key} is indented, so it belongs to {section}"
        lines = " and dedent its lines" if isinstance(document.value(at), dict | list) else ""
        help_ = f"remove the spaces before {key}{lines}"
    return Diagnostic(code, message, entry.key, str(key), help_)
