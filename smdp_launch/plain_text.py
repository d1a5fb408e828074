"""Removes terminal control sequences from text of a job when it is read, so that every view, report and card can show
it."""

from __future__ import annotations

import re
from typing import Any

#: Colours and weights. Other sequences can move the cursor, set the title, or do worse.
_COLOUR = r"\x1b\[[0-9;:]*m"
_SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])?"
#: Control characters except the tab, line separators, and marks that change the direction of writing.
_CHARACTERS = r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
_CONTROLS = re.compile(rf"(?P<colour>{_COLOUR})|{_SEQUENCE}|{_CHARACTERS}")


def without_controls(text: str) -> str:
    """One line of text without control sequences and control characters."""
    return _CONTROLS.sub("", text)


def with_colours(text: str) -> str:
    """As `without_controls`, but colour sequences are kept."""
    return _CONTROLS.sub(lambda match: match["colour"] or "", text)


def plain_lines(text: str) -> str:
    """`without_controls` of each line; lines end with LF."""
    return "\n".join(map(without_controls, text.split("\n")))


def plain_values(value: Any) -> Any:
    """`without_controls` of every text in a JSON value, names included. A lone surrogate becomes U+FFFD."""
    if isinstance(value, str):
        return value if value.isprintable() else without_controls(_in_pairs(value))
    if isinstance(value, dict):
        return {plain_values(name): plain_values(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain_values(one) for one in value]
    return value


def _in_pairs(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
