"""Cards for a notebook, as self-contained HTML.

A card loads nothing, every text in it is escaped, and secrets are starred. Text and lines inherit the colour of the
notebook, light or dark; only the accents have their own, with a contrast of 4 to a white and to a dark background.

JupyterLab's own stylesheet lets the names of a list float in a narrow column, so the rules for rows name two classes,
which is more than its rules do.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Sequence

from smdp_launch.secret_forms import masked, without_forms

ACCENTS = {"error": "#d6393a", "warning": "#a16f00", "note": "#1f7ab8"}

_STYLE = """\
.smdp-card{font-family:inherit;color:inherit;background:transparent;border:1px solid;border-radius:4px;
padding:.6em .8em;max-width:60em;line-height:1.35;overflow-wrap:anywhere}
.smdp-card .smdp-title{font-weight:bold}
.smdp-card .smdp-rows{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.1em 1em;margin:.4em 0 0}
.smdp-card .smdp-rows dt,.smdp-card .smdp-rows dd{float:none;clear:none;width:auto;margin:0;padding:0}
.smdp-card .smdp-rows dt{opacity:.75;font-weight:normal;white-space:nowrap}
.smdp-card .smdp-rows dd{white-space:pre-wrap}
.smdp-card code{color:inherit;background:transparent}
.smdp-card pre{color:inherit;background:transparent;overflow-x:auto;max-height:30em;margin:.3em 0}
""" + "\n".join(f".smdp-card .smdp-{kind}{{color:{colour}}}" for kind, colour in ACCENTS.items())

Row = tuple[str, str]

_CODE = re.compile("`([^`\n]+)`")


def text(value: str) -> str:
    """``value`` as HTML text. Tags and control characters, such as marks that change the direction, are shown as
    text."""
    shown = "".join(char if char in "\n\t" or char.isprintable() else repr(char)[1:-1] for char in value)
    return html.escape(without_forms(shown))


def code(value: str) -> str:
    """As `text`, with the words between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", text(value))


def rows(pairs: Iterable[Row], show: Callable[[str], str] = text) -> str:
    """Names and values in two columns; a value with a secret name is starred.

    Args:
        show: `text` or `code`, for the values.
    """
    cells = "".join(f"<dt>{text(name)}</dt><dd>{show(masked(name, value))}</dd>" for name, value in pairs)
    return f'<dl class="smdp-rows">{cells}</dl>'


def folded(summary: str, content: str) -> str:
    """``content``, unformatted, in a section that ``summary`` opens."""
    return f"<details><summary>{text(summary)}</summary><pre>{text(content)}</pre></details>"


def marked(kind: str, value: str) -> str:
    """A message in the colour of ``kind``, one of ``ACCENTS``. Words between backticks are code."""
    return f'<div class="smdp-{kind}">{code(value)}</div>'


def card(title: str, *parts: str, beside: str = "") -> str:
    """One card of ``parts``, which are HTML.

    Args:
        beside: a text after the title.
    """
    head = f'<span class="smdp-title">{text(title)}</span>' + (f" {text(beside)}" if beside else "")
    return f'<div class="smdp-card"><style>{_STYLE}</style><div>{head}</div>{"".join(parts)}</div>'


def lines(pairs: Sequence[Row]) -> str:
    """One ``name: value`` line for each pair; secrets are starred."""
    return "\n".join(f"{name}: {masked(name, value)}" for name, value in pairs)
