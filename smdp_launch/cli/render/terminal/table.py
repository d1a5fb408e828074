"""A table with a line of titles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len
from rich.text import Text

from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.plain_text import without_controls

_GAP = 2


@dataclass(frozen=True)
class Column:
    """Args:
    styles: rich's style of each cell.
    drop: the order in which columns are dropped on a narrow terminal; 0 for a column that is always shown.
    """

    title: str
    cells: Sequence[str]
    styles: Sequence[str] = ()
    drop: int = 0

    @cached_property
    def width(self) -> int:
        return max(cell_len(self.title), *map(cell_len, self.cells), 0) + _GAP


def print_table(console: Console, columns: Sequence[Column]) -> None:
    """Print the columns that fit the terminal; a pipe gets all columns."""
    shown = list(columns)
    for column in sorted((one for one in columns if one.drop), key=lambda one: one.drop):
        if not console.is_terminal or sum(one.width for one in shown) - _GAP <= console.width:
            break
        shown.remove(column)
    _print_line(console, [Text(one.title.ljust(one.width), "cyan") for one in shown])
    for row in range(len(columns[0].cells)):
        _print_line(console, [_cell(one, row) for one in shown])


def _cell(column: Column, row: int) -> Text:
    text = without_controls(column.cells[row])
    return Text(text + " " * (column.width - cell_len(text)), column.styles[row] if column.styles else "")


def _print_line(console: Console, cells: Sequence[Text]) -> None:
    line = Text.assemble(*cells)
    line.rstrip()
    console.print(line, soft_wrap=True)
