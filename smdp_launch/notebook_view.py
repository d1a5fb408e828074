"""How a notebook finds the view of a value. `smdp_launch.notebook`, above everything that is shown, makes the HTML."""

from __future__ import annotations

from importlib import import_module


class NotebookView:
    """A value that `smdp_launch.notebook.cards` shows. The module is loaded when a notebook first asks for a view."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        html: str = import_module("smdp_launch.notebook.cards").card_of(self)
        return html
