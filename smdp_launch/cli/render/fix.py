"""The diff of a fix, for a person."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from smdp_launch.cli.render.terminal.console import Console, visible

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def print_diff(lines: Sequence[str]) -> None:
    """Print the lines of a unified diff on standard output."""
    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        console.print(Text(visible(line), _STYLES.get(line[:1], "")))
