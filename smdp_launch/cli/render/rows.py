"""Names and values in two columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from smdp_launch.cli.render.console import Console

_GAP = 2


def print_rows(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """A terminal gets values folded within its width; a file or a pipe gets each on one whole line."""
    width = max((len(name) for name, _ in rows), default=0) + _GAP
    for name, value in rows:
        lines = [Text(value)]
        if console.is_terminal:
            lines = list(Text(value).wrap(console, max(20, console.width - width)))
        for index, line in enumerate(lines):
            head = Text((name if index == 0 else "").ljust(width), "cyan")
            console.print(head + line, soft_wrap=True)
