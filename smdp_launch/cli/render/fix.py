"""The difference that a fix makes, for a person."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from smdp_launch.cli.render.terminal.console import Console, visible

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def show_diff(lines: Sequence[str]) -> None:
    """On standard output, as of ``diff -u``."""
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(visible(line), _STYLES.get(line[:1], "")))
