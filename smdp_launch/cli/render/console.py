"""Where the views draw, and what may be drawn there."""

from __future__ import annotations

import os
import re
from typing import Any

import rich.console

#: Colours and weights; every other sequence could move the cursor, set the title or worse.
_COLOUR = r"\x1b\[[0-9;:]*m"
_SEQUENCE = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])?"
_CONTROLS = re.compile(rf"(?P<colour>{_COLOUR})|{_SEQUENCE}|[\x00-\x08\x0a-\x1f\x7f-\x9f]")


class Console(rich.console.Console):
    """Says that its reader has gone instead of ending the process: `| head` is no mistake of ours."""

    def __init__(self, **options: Any) -> None:
        # Rich alone would leave out the colours and keep bold and underlined.
        plain = {"color_system": None} if os.environ.get("NO_COLOR") else {}
        super().__init__(**{**options, **plain})

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def without_controls(text: str) -> str:
    """``text`` without what a terminal would obey, colours apart."""
    return _CONTROLS.sub(lambda match: match["colour"] or "", text)


def visible(text: str) -> str:
    """``text`` with its control characters as Python would write them: what a file holds is shown, not obeyed."""
    return "".join(char if char == "\t" or char.isprintable() else repr(char)[1:-1] for char in text)
