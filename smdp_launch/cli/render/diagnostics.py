"""Diagnostics for a person: the excerpt of the file, the reason, the fix. Always on standard error."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from smdp_launch.cli.render.console import Console, visible
from smdp_launch.diagnostics import Diagnostic, Severity, shortened

#: Nobody reads more, and a file with more is usually not what it was meant to be.
_SHOWN = 100
_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow"}


def show_diagnostics(diagnostics: Sequence[Diagnostic]) -> None:
    if not diagnostics:
        return
    Console(stderr=True, highlight=False, soft_wrap=True).print(told(diagnostics))


def told(diagnostics: Sequence[Diagnostic]) -> Text:
    """Up to a hundred, a blank line between two, and how many there are."""
    errors = sum(one.severity is Severity.ERROR for one in diagnostics)
    warnings = len(diagnostics) - errors
    counts = [
        f"{count} {name}{'s' if count > 1 else ''}"
        for count, name in ((errors, "error"), (warnings, "warning"))
        if count
    ]
    first = diagnostics[0].code
    end = f"{' and '.join(counts)}; smdp-launch explain {first} tells more"
    if len(diagnostics) > _SHOWN:
        end += f"\nThe first {_SHOWN} are shown; smdp-launch validate --json tells all."
    return Text("\n").join([*map(_told, diagnostics[:_SHOWN]), Text(end)])


def _told(one: Diagnostic) -> Text:
    style = _STYLES[one.severity]
    text = Text()
    text.append(f"{one.severity.value}[{one.code}]", style).append(f": {visible(shortened(one.message))}\n", "bold")
    if one.span is not None:
        number = str(one.span.line)
        gutter = " " * len(number)
        text.append(f"{gutter}--> ", "blue").append(f"{one.span}\n")
        if one.span.source.strip():
            excerpt, column = one.span.excerpt()
            source = visible(excerpt)
            # The marks stand under the text in a terminal only if tabs are copied.
            indent = "".join("\t" if char == "\t" else " " for char in source[: column - 1])
            width = max(1, min(one.span.end_column - one.span.column, len(source) + 1 - column))
            text.append(f"{number} | ", "blue").append(f"{source}\n")
            text.append(f"{gutter} | ", "blue").append(f"{indent}{'^' * width}\n", style)
    if one.help:
        gutter = " " * (len(str(one.span.line)) if one.span else 1)
        text.append(f"{gutter} = ", "blue").append("help: ", "bold green").append(f"{visible(shortened(one.help))}\n")
    return text
