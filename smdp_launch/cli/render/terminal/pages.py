"""A page of docs/errors: rendered on a terminal, as Markdown elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import click

from smdp_launch.cli.render.terminal.console import Console

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import ConsoleOptions, RenderResult
    from rich.markdown import MarkdownElement

#: Columns; longer lines are hard to read.
_WIDEST = 100


def print_page(text: str) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        click.echo(text.rstrip("\n"))
        return
    from rich.markdown import Heading, Markdown

    class Left(Heading):
        """A heading at the left margin."""

        def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
            self.text.justify = "left"
            yield self.text

    class Page(Markdown):
        elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": Left}

    console.print(Page(text, code_theme="ansi_dark"), width=min(console.width, _WIDEST))
