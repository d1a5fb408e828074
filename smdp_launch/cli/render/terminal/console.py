"""The console of all views, and text that is safe for it."""

from __future__ import annotations

import os
from typing import Any

import rich.console


class Console(rich.console.Console):
    """Raises BrokenPipeError, instead of ending the process, when the reader of the output has exited (`| head`)."""

    def __init__(self, **options: Any) -> None:
        # With NO_COLOR, rich itself removes the colours but not bold and underline.
        plain = {"color_system": None} if os.environ.get("NO_COLOR") else {}
        super().__init__(**{**options, **plain})

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def visible(text: str) -> str:
    """``text`` with its control characters escaped, so that a terminal does not execute them."""
    return "".join(char if char == "\t" or char.isprintable() else repr(char)[1:-1] for char in text)
