"""The layout of ``--help``: the terminal's width, colours on a terminal only, and the page of the documentation."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

import click

#: Columns. Tables may be as wide as ``MOST_COLUMNS``; longer lines of prose are hard to read.
MOST_COLUMNS = 140
_PROSE = 100
_NAMES = 30  # the widest column of options, on a terminal of 80 columns
#: Stands for a hyphen within a word while click breaks lines, so that names and paths stay whole.
_HYPHEN = "\ue000"
_INNER_HYPHEN = re.compile(r"(?<=\w)-(?=\w)")


class HelpFormatter(click.HelpFormatter):
    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, _styled(prefix or "Usage: ", bold=True))

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':{self.current_indent}}{_styled(f'{heading}:', bold=True)}\n")

    def write_text(self, text: str) -> None:
        width, self.width = self.width, min(self.width, _PROSE)
        super().write_text(_INNER_HYPHEN.sub(_HYPHEN, text))
        self.width = width

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = _NAMES, col_spacing: int = 2) -> None:
        styled = [(_styled(name, fg="cyan"), _INNER_HYPHEN.sub(_HYPHEN, text)) for name, text in rows]
        super().write_dl(styled, max(col_max, self.width * 3 // 10), col_spacing)

    def getvalue(self) -> str:
        return super().getvalue().replace(_HYPHEN, "-")


class HelpContext(click.Context):
    formatter_class = HelpFormatter


class LocalOption(click.Option):
    """An option of local runs alone."""


class LaunchCommand(click.Command):
    """Lists each `LocalOption` in a section of its own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        params = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        for title, is_local in (("Options", False), ("Options of local runs (with --local)", True)):
            rows = [one.get_help_record(ctx) for one in params if isinstance(one, LocalOption) is is_local]
            with formatter.section(title):
                formatter.write_dl([row for row in rows if row is not None])


def with_help_layout(command: click.Command, page: str | None = None) -> click.Command:
    """Return ``command`` with this layout; ``page`` is the path of its documentation."""
    command.context_class = HelpContext
    if page is not None:
        command.epilog = f"Documentation: {page}"
    return command


def _styled(text: str, *, fg: str | None = None, bold: bool | None = None) -> str:
    has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return click.style(text, fg=fg, bold=bold) if has_colours else text
