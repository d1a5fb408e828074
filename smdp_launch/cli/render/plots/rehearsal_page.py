"""The report of a rehearsal as an HTML page: one file without scripts and external resources, also for print.

The page is well-formed XML. Every text is escaped: names, log lines and reasons come from unauthenticated sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from smdp_launch.cli.render.plots.rehearsal_plot import PLOT_STYLE, plot
from smdp_launch.cli.render.plots.svg import DARK, LIGHT, PRINT, properties
from smdp_launch.notebook.html import rows, text
from smdp_launch.planning.past_rehearsals import REHEARSAL_VERSION
from smdp_launch.rehearsals.report import Report, Timeline
from smdp_launch.units import count

Row = tuple[str, str]

_STYLE = (
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
ul{margin:0;padding-left:1.2em}p{margin:0}footer{margin-top:2em;color:var(--soft);font-size:.87em}
figure{margin:0}figcaption{color:var(--soft);font-size:.87em;margin:.3em 0 .8em}
figure{overflow-x:auto}svg{display:block;width:100%;min-width:42em;height:auto}
table{border-collapse:collapse;font-size:.93em}
th{color:var(--soft);font-weight:normal;text-align:left}
th,td{padding:.15em 1.4em .15em 0;border-bottom:1px solid var(--line);vertical-align:top}
th,td:not(:last-child){white-space:nowrap}
.number{text-align:right;font-variant-numeric:tabular-nums}
"""
    f"@media print{{:root{{color-scheme:light;{properties(PRINT)};--pass:#116329;--fail:#a40e26}}\n"
    """\
body{max-width:none;margin:0;font-size:11px}h2{margin:.9em 0 .3em}svg{min-width:0}
figure,tr{break-inside:avoid}h2{break-after:avoid}}
""" + PLOT_STYLE
)


def html_page(report: Report) -> str:
    title = text(f"{report.plan.job}: rehearsal of {report.fault.kind}")
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<title>{title}</title>
<style>
{_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
{"".join(_sections(report))}
<footer>{text(_footer(report))}</footer>
</body>
</html>
"""


def _sections(report: Report) -> Iterator[str]:
    kind = {"PASS": "passed", "FAIL": "failed", "INCONCLUSIVE": "open"}[report.verdict]
    yield f'<p class="verdict {kind}"><strong>{report.verdict}</strong>{text(report.reason)}</p>\n'
    yield _section("Rehearsal", rows(report.rehearsed))
    yield _section("On SageMaker", f"<p>{text(report.platform)}</p>")
    yield _section("Evidence", rows(report.evidence))
    yield _section("Timeline", _figure(report.timeline) + _table(report.timeline))
    yield _section("Simulated locally", rows(report.applied))
    if report.not_applied:
        yield _section("Not simulated locally", _items(report.not_applied))
    yield _section("Differences on SageMaker", rows(report.adds))


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{text(title)}</h2>\n{content}\n</section>\n"


def _items(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{text(one)}</li>' for one in lines)}</ul>"


def _figure(timeline: Timeline) -> str:
    began = f"Seconds since {timeline.began:%Y-%m-%d %H:%M:%S} UTC, when the job was created."
    steps = ""
    if timeline.steps:
        drawn = f"{count(len(timeline.steps), 'step')} {'is' if len(timeline.steps) == 1 else 'are'} drawn"
        steps = f" {drawn} as reported; nothing between two steps was measured."
    return f"<figure>{plot(timeline)}<figcaption>{text(began + steps)}</figcaption></figure>"


def _table(timeline: Timeline) -> str:
    """The timeline in figures, in the order of time."""
    cells: list[tuple[int, Sequence[str]]] = []
    for number, statuses in enumerate(timeline.attempts, 1):
        for one in statuses:
            lasted = f"{one.seconds:.3f}" if one.end_ms > one.start_ms else ""
            cells.append((one.start_ms, (str(number), f"{one.start_ms / 1000:.3f}", lasted, one.name, one.message)))
    for kind, moments in (("fault", timeline.faults), ("restored", timeline.restored)):
        cells += [
            (one.at_ms, ("", f"{one.at_ms / 1000:.3f}", "", kind, _placed(one.host, one.text))) for one in moments
        ]
    body = "".join(_line(row) for _, row in sorted(cells, key=lambda one: one[0]))
    head = "".join(f"<th{_right(index)}>{name}</th>" for index, name in enumerate(("attempt", "at s", "for s", "", "")))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _line(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td{_right(index)}>{text(one)}</td>' for index, one in enumerate(cells))}</tr>"


def _right(index: int) -> str:
    return ' class="number"' if index in (1, 2) else ""


def _placed(host: str, what: str) -> str:
    return what if host in what or "all hosts" in what else f"{host}: {what}"


def _footer(report: Report) -> str:
    return (
        f"Version {REHEARSAL_VERSION} of the report, written by smdp-launch {report.version}. Times,"
        " steps and seconds were measured on this machine; limits and costs are the plan's bounds. The duration on"
        " SageMaker was not measured."
    )
