"""Diagnostics for a person, on standard error: the excerpt of the file, the reason and the fix."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from smdp_launch.cli.render.terminal.console import Console, visible
from smdp_launch.cli.render.terminal.rows import wrapped
from smdp_launch.diagnostics import Diagnostic, Severity, Span, count_problems, shortened

#: A file with more errors usually is no job file.
_MOST = 100
_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def print_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    if not diagnostics:
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(diagnostics_text(diagnostics, console if console.is_terminal else None))


def diagnostics_text(diagnostics: Sequence[Diagnostic], terminal: Console | None = None) -> Text:
    """At most a hundred diagnostics and a summary, wrapped to the width of ``terminal``."""
    counts = count_problems(diagnostics).replace(", ", " and ")
    # Refer to the first of the most severe: an error, even if a warning or a note precedes it.
    first = min(diagnostics, key=lambda one: _SEVERITIES.index(one.severity)).code
    end = f"{counts}; " if counts else ""
    end += f"for details: smdp-launch explain {first}"
    fixable = sum(bool(one.edits) for one in diagnostics)
    if fixable:
        end = f"{fixable} can be fixed with smdp-launch validate --fix\n{end}"
    if len(diagnostics) > _MOST:
        end += f"\nonly the first {_MOST} are shown: smdp-launch validate --json prints all"
    return Text("\n").join([*(_diagnostic_text(one, terminal) for one in diagnostics[:_MOST]), Text(end)])


def _diagnostic_text(one: Diagnostic, terminal: Console | None) -> Text:
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
    """The line of the file with marks below the error. A terminal gets a cut line: wrapping misplaces the marks."""
    excerpt, column = span.excerpt() if terminal is None else span.excerpt(max(20, terminal.width - len(gutter) - 5))
    source = visible(excerpt)
    # Copy tabs, so that a terminal aligns the marks with the text.
    indent = "".join("\t" if char == "\t" else " " for char in source[: column - 1])
    width = max(1, min(span.end_column - span.column, len(source) + 1 - column))
    text = Text.assemble((f"{span.line} | ", "blue"), f"{source}\n")
    return text.append(f"{gutter} | ", "blue").append(f"{indent}{'^' * width}\n", style)


def _within(terminal: Console | None, head: Text, body: Text, indent: int) -> Text:
    """``head`` and ``body`` as one wrapped paragraph with indented continuation lines."""
    if terminal is None:
        return head + body + Text("\n")
    first, *rest = wrapped(head + body, terminal.width)
    if rest:
        rest = wrapped(Text(" ").join(rest), terminal.width - indent)
    return Text("\n").join([first, *(Text(" " * indent) + line for line in rest)]) + Text("\n")
