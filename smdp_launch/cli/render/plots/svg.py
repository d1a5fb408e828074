"""Sizes, colours for light and dark backgrounds, and escaped text of all drawings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from smdp_launch.notebook.html import text

#: Width of a drawing and of its left margin, in SVG units.
WIDTH, LEFT = 960, 84
LETTER = 6.9  # approximate width of a letter of 12 units

Colours = Mapping[str, str]

#: Colours of the background, text, secondary text and lines.
LIGHT: Colours = {"ground": "#fff", "ink": "#1b1f24", "soft": "#59636e", "line": "#d1d9e0"}
DARK: Colours = {"ground": "#14171c", "ink": "#e6e9ed", "soft": "#9aa4af", "line": "#3a424b"}
PRINT: Colours = {"ground": "#fff", "ink": "#000", "soft": "#444", "line": "#bbb"}

BASE_STYLE = """\
.plot text{font-size:12px;fill:var(--ink)}.plot .soft{fill:var(--soft)}
.plot .grid{stroke:var(--line)}.plot .axis{stroke:var(--soft)}
"""


def properties(colours: Colours) -> str:
    """The colours as CSS variables."""
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


def resolved(style: str, colours: Colours) -> str:
    """The style with colours in place of the CSS variables, which some SVG viewers do not support."""
    return re.sub(r"var\(--(\w+)\)", lambda match: colours[match[1]], style)


def title_of(label: str) -> str:
    """A tooltip of the enclosing element."""
    return f"<title>{text(label)}</title>"


def text_at(x: float, y: float, label: str, style: str, anchor: str) -> str:
    return f'<text class="{style}" x="{round(x, 2)}" y="{round(y, 2)}" text-anchor="{anchor}">{text(label)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{round(x1, 2)}" x2="{round(x2, 2)}" y1="{round(y1, 2)}" y2="{round(y2, 2)}"/>'
