"""Diagnostics for a person: the excerpt of the file, the reason, the fix. Always on standard error."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from smdp_launch.cli.render.terminal.console import Console, visible
from smdp_launch.cli.render.terminal.rows import wrapped
from smdp_launch.diagnostics import Diagnostic, Severity, Span, shortened, summed

#: Nobody reads more, and a file with more is usually not what it was meant to be.
_SHOWN = 100
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def show_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    if not diagnostics:
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(told(diagnostics, console if console.is_terminal else None))


def told(diagnostics: Sequence[Diagnostic], terminal: Console | None = None) -> Text:
    """Up to a hundred, a blank line between two, and how many there are; within the width of ``terminal``."""
    counts = summed(diagnostics).replace(", ", " and ")
    # Notes alone count as nothing, and the first problem is worth more words than a note before it.
    first = next((one for one in diagnostics if one.severity is not Severity.NOTE), diagnostics[0]).code
    end = f"{counts}; " if counts else ""
    end += f"smdp-launch explain {first} tells more"
    fixable = sum(bool(one.edits) for one in diagnostics)
    if fixable:
        end = f"{fixable} can be fixed with smdp-launch validate --fix\n{end}"
    if len(diagnostics) > _SHOWN:
        end += f"\nThe first {_SHOWN} are shown; smdp-launch validate --json tells all."
    return Text("\n").join([*(_told(one, terminal) for one in diagnostics[:_SHOWN]), Text(end)])


def _told(one: Diagnostic, terminal: Console | None) -> Text:
    gutter = " " * (len(str(one.span.line)) if one.span else 1)
    head = Text.assemble((f"{one.severity.value}[{one.code}]", _STYLES[one.severity]), (": ", "bold"))
    text = _within(terminal, head, Text(visible(shortened(one.message)), "bold"), indent=2)
    if one.span is not None:
        text.append(f"{gutter}--> ", "blue").append(f"{visible(str(one.span))}\n")
        if one.span.source.strip():
            text.append_text(_excerpt(one.span, gutter, _STYLES[one.severity], terminal))
    if one.also:
        text.append_text(
            _row(terminal, gutter, ("also at: ", "bold"), ", ".join(visible(str(each)) for each in one.also))
        )
    if one.help:
        text.append_text(_row(terminal, gutter, ("help: ", "bold green"), one.help))
    return text


def _row(terminal: Console | None, gutter: str, title: tuple[str, str], value: str) -> Text:
    """A line below the excerpt, such as the help."""
    head = Text.assemble((f"{gutter} = ", "blue"), title)
    return _within(terminal, head, Text(visible(shortened(value))), indent=head.cell_len)


def _excerpt(span: Span, gutter: str, style: str, terminal: Console | None) -> Text:
    """The line with marks under the place; cut to the terminal, where marks under a wrapped line would be astray."""
    excerpt, column = span.excerpt() if terminal is None else span.excerpt(max(20, terminal.width - len(gutter) - 5))
    source = visible(excerpt)
    # The marks stand under the text in a terminal only if tabs are copied.
    indent = "".join("\t" if char == "\t" else " " for char in source[: column - 1])
    width = max(1, min(span.end_column - span.column, len(source) + 1 - column))
    text = Text.assemble((f"{span.line} | ", "blue"), f"{source}\n")
    return text.append(f"{gutter} | ", "blue").append(f"{indent}{'^' * width}\n", style)


def _within(terminal: Console | None, head: Text, body: Text, indent: int) -> Text:
    """``head`` and ``body`` as one paragraph that ends its line, further lines of it indented."""
    if terminal is None:
        return head + body + Text("\n")
    first, *rest = wrapped(head + body, terminal.width)
    if rest:
        rest = wrapped(Text(" ").join(rest), terminal.width - indent)
    return Text("\n").join([first, *(Text(" " * indent) + line for line in rest)]) + Text("\n")
