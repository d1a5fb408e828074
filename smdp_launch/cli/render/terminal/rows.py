"""Names and values in two columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.plain_text import without_controls

_GAP = 2
_NARROWEST = 20


def wrapped(text: Text, width: int) -> list[Text]:
    """Lines of at most ``width`` columns. Longer words stay whole, which rich would cut or fold."""
    width, start, breaks = max(_NARROWEST, width), 0, []
    for word in re.finditer(r"\S+", text.plain):
        if word.start() > start and cell_len(text.plain[start : word.end()]) > width:
            start = word.start()
            breaks.append(start)
    lines = list(text.divide(breaks))
    for line in lines:
        line.rstrip()
    return lines


def print_rows(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values. A terminal gets values wrapped between words, so that URLs can be copied; a pipe gets one
    line for each value. Control characters are removed."""
    width = max((len(name) for name, _ in rows), default=0) + _GAP
    for name, value in rows:
        text = Text(without_controls(value))
        lines = wrapped(text, console.width - width) if console.is_terminal else [text]
        for index, line in enumerate(lines):
            head = Text((name if index == 0 else "").ljust(width), "cyan")
            # Assembled: a sum of texts has the style of the first all over.
            console.print(Text.assemble(head, line), soft_wrap=True)
