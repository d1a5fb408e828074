"""A page of docs/errors for a person: drawn in a terminal, as it is written everywhere else."""

from __future__ import annotations

import click

from smdp_launch.cli.render.console import Console


def show_page(text: str) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        click.echo(text.rstrip("\n"))
        return
    from rich.markdown import Markdown

    console.print(Markdown(text, code_theme="ansi_dark"))
