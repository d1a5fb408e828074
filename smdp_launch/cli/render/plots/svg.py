"""What the drawings have in common: sizes, colours in light and in dark, and text that shows what it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping

from smdp_launch.notebook.html import text

#: Units of a drawing's width, and to the left of what is drawn.
WIDTH, LEFT = 960, 84
LETTER = 6.9  # of the 12-unit text, about

Colours = Mapping[str, str]

#: Of what is around a drawing: ground, text, lesser text and lines.
LIGHT: Colours = {"ground": "#fff", "ink": "#1b1f24", "soft": "#59636e", "line": "#d1d9e0"}
DARK: Colours = {"ground": "#14171c", "ink": "#e6e9ed", "soft": "#9aa4af", "line": "#3a424b"}
PRINT: Colours = {"ground": "#fff", "ink": "#000", "soft": "#444", "line": "#bbb"}

BASE_STYLE = """\
.plot text{font-size:12px;fill:var(--ink)}.plot .soft{fill:var(--soft)}
.plot .grid{stroke:var(--line)}.plot .axis{stroke:var(--soft)}
"""


def properties(colours: Colours) -> str:
    """For a page, whose style names them as variables."""
    return ";".join(f"--{name}:{colour}" for name, colour in colours.items())


def resolved(style: str, colours: Colours) -> str:
    """The style with the colours in place of their variables: programs that draw a file alone know no variables."""
    return re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], style)


def title_of(told: str) -> str:
    """What a reader is shown who points at the element that this is put into."""
    return f"<title>{text(told)}</title>"


def text_at(x: float, y: float, told: str, style: str, anchor: str) -> str:
    return f'<text class="{style}" x="{round(x, 2)}" y="{round(y, 2)}" text-anchor="{anchor}">{text(told)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{round(x1, 2)}" x2="{round(x2, 2)}" y1="{round(y1, 2)}" y2="{round(y2, 2)}"/>'
