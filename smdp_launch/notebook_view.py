"""How a notebook shows a value. `notebook.cards` registers a view for each type, and `smdp_launch.api` loads it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import singledispatch
from typing import Any


@singledispatch
def html_of(value: object) -> str | None:
    """The HTML of one value; None where no view is registered, so that a notebook shows its text."""
    return None


class NotebookView:
    """A value that a notebook shows as HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return html_of(self)


class LiveView:
    """Shows a value again after it has changed: as a card that is replaced in a notebook, else as lines of text.

    Args:
        text: of the value now; printed if it differs from the line before.
    """

    def __init__(self, value: NotebookView, text: Callable[[], str]) -> None:
        self._value, self._text = value, text
        self._shown: str | None = None
        self._handle: Any = None

    def update(self) -> None:
        if not _is_notebook():
            line = self._text()
            if line != self._shown:
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
            self._shown = line
        elif self._handle is None:
            from IPython.display import display

            self._handle = display(self._value, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(self._value)


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    return shell is not None and hasattr(shell.get_ipython(), "kernel")
