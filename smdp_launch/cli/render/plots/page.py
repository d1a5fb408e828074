"""What the reports of runs and rehearsals share: one HTML file without scripts and external resources, also for print.

A page is well-formed XML. Every text is escaped: names, log lines and reasons come from unauthenticated sources.
"""

from __future__ import annotations

from smdp_launch.cli.render.plots.svg import DARK, LIGHT, PRINT, properties
from smdp_launch.notebook.html import code, text

_SCREEN = (
    f":root{{color-scheme:light dark;{properties(LIGHT)};--pass:#1a7f37;--fail:#c4262e}}\n"
    "@media (prefers-color-scheme:dark){\n"
    f":root{{{properties(DARK)};--pass:#4ac26b;--fail:#ff7b72}}}}\n"
    """\
body{background:var(--ground);color:var(--ink);font:15px/1.45 system-ui,"DejaVu Sans",sans-serif;
max-width:62em;margin:2em auto;padding:0 1em;overflow-wrap:anywhere}
h1{font-size:1.35em;margin:0}h2{font-size:1.05em;margin:1.6em 0 .4em;padding-bottom:.2em;
border-bottom:1px solid var(--line)}
.verdict{font-size:1.1em;margin:.8em 0;padding:.6em .9em;border:1px solid var(--line);border-left-width:6px}
.verdict strong{margin-right:.6em}
.passed{border-left-color:var(--pass)}.passed strong{color:var(--pass)}
.failed{border-left-color:var(--fail)}.failed strong{color:var(--fail)}
.smdp-rows{display:grid;grid-template-columns:minmax(7em,max-content) 1fr;gap:.2em 1.2em;margin:0}
dt{color:var(--soft)}dd{margin:0;white-space:pre-wrap}
footer{margin-top:2em;color:var(--soft);font-size:.87em}
figure{overflow-x:auto}figcaption{color:var(--soft);font-size:.87em}
svg{display:block;width:100%;min-width:42em;height:auto}
table{border-collapse:collapse;font-size:.93em}
th{color:var(--soft);font-weight:normal;text-align:left}
th,td{border-bottom:1px solid var(--line);vertical-align:top}
th,td:not(:last-child){white-space:nowrap}
"""
)
_PAPER = (
    f"@media print{{:root{{color-scheme:light;{properties(PRINT)};--pass:#116329;--fail:#a40e26}}\n"
    """\
body{max-width:none;margin:0;font-size:11px}h2{margin:.9em 0 .3em}svg{min-width:0}
figure,tr{break-inside:avoid}h2,h3{break-after:avoid}}
"""
)


def page(title: str, heading: str, style: str, sections: str, footer: str) -> str:
    """Args:
    title, heading, footer: texts; escaped here.
    style: the rules of this page, which its drawings need too.
    sections: HTML.
    """
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<title>{text(title)}</title>
<style>
{_SCREEN}{style}{_PAPER}</style>
</head>
<body>
<h1>{text(heading)}</h1>
{sections}
<footer>{text(footer)}</footer>
</body>
</html>
"""


def verdict(kind: str, word: str, reason: str) -> str:
    """A box. ``kind``: ``passed``, ``failed`` or ``open``, which decides its colour."""
    return f'<p class="verdict {kind}"><strong>{text(word)}</strong>{code(reason)}</p>\n'


def section(title: str, content: str) -> str:
    return f"<section>\n<h2>{text(title)}</h2>\n{content}\n</section>\n"
