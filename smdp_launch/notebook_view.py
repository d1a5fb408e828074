"""How a notebook shows a value. `notebook.cards` registers a view for each type, and `smdp_launch.api` loads it."""

from __future__ import annotations

from functools import singledispatch


@singledispatch
def html_of(value: object) -> str | None:
    """The HTML of one value; None where no view is registered, so that a notebook shows its text."""
    return None


class NotebookView:
    """A value that a notebook shows as HTML."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return html_of(self)
