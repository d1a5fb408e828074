"""Where the views draw, and what may be drawn there."""

from __future__ import annotations

import os
from typing import Any

import rich.console


class Console(rich.console.Console):
    """Says that its reader has gone instead of ending the process: `| head` is no mistake of ours."""

    def __init__(self, **options: Any) -> None:
        # Rich alone would leave out the colours and keep bold and underlined.
        plain = {"color_system": None} if os.environ.get("NO_COLOR") else {}
        super().__init__(**{**options, **plain})

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def visible(text: str) -> str:
    """``text`` with its control characters as Python would write them: what a file holds is shown, not obeyed."""
    return "".join(char if char == "\t" or char.isprintable() else repr(char)[1:-1] for char in text)
