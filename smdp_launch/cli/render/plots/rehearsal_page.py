"""The report of a rehearsal as an HTML page: one file without scripts and external resources, also for print.

The page is well-formed XML. Every text is escaped: names, log lines and reasons come from unauthenticated sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from smdp_launch.cli.render.plots.page import page, section, verdict
from smdp_launch.cli.render.plots.rehearsal_plot import PLOT_STYLE, plot
from smdp_launch.notebook.html import rows, text
from smdp_launch.planning.past_rehearsals import REHEARSAL_VERSION
from smdp_launch.rehearsals.report import Report, Timeline
from smdp_launch.units import count

Row = tuple[str, str]

_STYLE = (
    """\
ul{margin:0;padding-left:1.2em}p{margin:0}figure{margin:0}figcaption{margin:.3em 0 .8em}
th,td{padding:.15em 1.4em .15em 0}
.number{text-align:right;font-variant-numeric:tabular-nums}
"""
    + PLOT_STYLE
)


def html_page(report: Report) -> str:
    title = f"{report.run.name}: rehearsal of {report.kind}"
    return page(title, title, _STYLE, "".join(_sections(report)), _footer(report))


def _sections(report: Report) -> Iterator[str]:
    kind = {"PASS": "passed", "FAIL": "failed", "INCONCLUSIVE": "open"}[report.verdict]
    yield verdict(kind, report.verdict, report.reason)
    yield section("Rehearsal", rows(report.rehearsed))
    yield section("On SageMaker", f"<p>{text(report.platform)}</p>")
    yield section("Evidence", rows(report.evidence))
    yield section("Timeline", _figure(report.timeline) + _table(report.timeline))
    yield section("Simulated locally", rows(report.applied))
    if report.not_applied:
        yield section("Not simulated locally", _items(report.not_applied))
    yield section("Differences on SageMaker", rows(report.adds))


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
