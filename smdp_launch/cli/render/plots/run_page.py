"""The report of a run as an HTML page: one file without scripts and external resources, also for print.

The page is well-formed XML. Every text is escaped: names, metrics and reasons come from the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from smdp_launch import __version__
from smdp_launch.cli.render.plots.charts import CHART_STYLE
from smdp_launch.cli.render.plots.page import page, section
from smdp_launch.cli.render.plots.page import verdict as box
from smdp_launch.cli.render.plots.run_figures import (
    Figure,
    host_figures,
    metric_figures,
    share_figures,
    speed_figures,
    timeline_figures,
)
from smdp_launch.cli.render.plots.svg import BASE_STYLE
from smdp_launch.diagnosis.time_shares import time_text
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.run import Run
from smdp_launch.notebook.html import code, rows, text
from smdp_launch.run_metrics.network import NetworkReport
from smdp_launch.run_metrics.run import Moment
from smdp_launch.run_metrics.summary import about, main_metric, progress_text, totals_text
from smdp_launch.units import count, duration, titled

Row = tuple[str, str]

#: Events in the table. The others are counted.
_MOST_EVENTS = 200
_LONGEST_FIELD = 400

REPORT_STYLE = (
    """\
h3{font-size:.95em;margin:1em 0 .2em;font-weight:600}
p{margin:.3em 0}figure{margin:0 0 .6em}figcaption{margin:.2em 0}
.scroll{overflow-x:auto}th,td{padding:.15em 1.2em .15em 0}
"""
    + BASE_STYLE
    + CHART_STYLE
    + ".plot text.on{fill:#fff;font-size:11px}\n"
)


def html_page(run: Run, verdict: Sequence[Row], now: datetime) -> str:
    """Args:
    verdict: what holds the run back, as rows.
    now: when the events were read.
    """
    footer = f"Written by smdp-launch {__version__} on {utc_text(now)}. All values are measured."
    return page(f"{run.name}: report", run.name, REPORT_STYLE, "".join(_sections(run, verdict)), footer)


def _sections(run: Run, verdict: Sequence[Row]) -> Iterator[str]:
    yield _outcome(run)
    yield section("Summary", rows(_summary(run)))
    if verdict:
        yield section("What limits the speed", rows(verdict, code))
    named: list[tuple[str, Sequence[Figure]]] = [
        ("Metrics", metric_figures(run.metrics)),
        ("Speed", speed_figures(run.metrics)),
        ("Where the time went", share_figures(run.metrics)),
        ("Timeline", timeline_figures(run.metrics)),
        ("Hosts", host_figures(run.metrics)),
    ]
    for title, figures in named:
        shown = [one for one in figures if one.svg]
        if shown:
            yield section(title, "".join(map(figure, shown)))
    if not any(one.svg for _, figures in named for one in figures):
        yield section("Measurements", "<p>The job reported no steps and no times.</p>")
    if run.metrics.network is not None:
        yield section("Network at the start", rows(list(_network(run.metrics.network))))
    checkpoints = list(_checkpoints(run))
    if checkpoints:
        yield section("Checkpoints", rows(checkpoints))
    if run.metrics.moments:
        yield section("Events", _events(run))


def _outcome(run: Run) -> str:
    ended = run.description.outcome
    kind, status = ("open", run.description.secondary) if ended is None else ("failed", ended.summary)
    if ended is not None and ended.status == "Completed":
        kind = "passed"
    known = totals_text(run.metrics) if ended is not None else progress_text(run.metrics)
    return box(kind, status, known)


def _summary(run: Run) -> Iterator[Row]:
    known, metrics = run.description, run.metrics
    ended = known.outcome
    simulated = f"this machine, {count(known.hosts, 'simulated host')}"
    where = simulated if run.where == LOCAL else f"{run.where}, {known.hosts_text}"
    workers = f", {count(metrics.world_size, 'worker')}" if metrics.world_size is not None else ""
    yield "where", where + workers
    yield "created", utc_text(known.created)
    yield from titled("statuses", [f"{one.status}, {duration(round(one.seconds))}" for one in known.steps])
    if ended is not None:
        yield from titled("reason", ended.reason.splitlines())
        if ended.training_seconds is not None:
            yield "training", duration(ended.training_seconds)
    yield from _cost(run)
    if not run.has_all_lines:
        yield "log", "not read to its end, because the timeout came first: numbers may be missing"
    if metrics.step is not None:
        yield "steps", f"{metrics.step:,}" + (f" of {metrics.steps:,}" if metrics.steps is not None else "")
    name = main_metric(metrics)
    for metric in sorted(metrics.metrics, key=lambda one: one != name):
        yield metric, metrics.metrics[metric].shown(6) or "unknown"
    shares = time_text(metrics)
    if shares:
        yield "time", shares


def _cost(run: Run) -> Iterator[Row]:
    if run.where == LOCAL:
        yield "cost", "not billed"
    elif run.usd is not None:
        is_known = run.description.instance_type is not None or run.description.types
        at = "at" if is_known else "at most, if it gets the most expensive type, at"
        yield "cost", f"{run.usd:,.2f} USD {at} {run.price:,.4g} USD an hour for each host, without a spot discount"
    else:
        yield "cost", "unknown: no price"


def _checkpoints(run: Run) -> Iterator[Row]:
    if run.description.checkpoints is not None:
        yield "location", run.description.checkpoints
    totals = [one for one in (rank.timing.total() for rank in run.metrics.ranks.values()) if one is not None]
    saves = max((one.values.get("checkpoints", 0.0) for one in totals), default=0.0)
    seconds = max((one.values.get("checkpoint_s", 0.0) for one in totals), default=0.0)
    if saves:
        yield "saves", f"{saves:,.0f}, at most {about(seconds)} of a worker"


def _network(report: NetworkReport) -> Iterator[Row]:
    yield "links", report.summary()
    for one in report.problems:
        yield "problem", f"{one.text}. {one.fix}"


def figure(one: Figure) -> str:
    caption = f"<figcaption>{text(one.caption)}</figcaption>" if one.caption else ""
    return f"<h3>{text(one.title)}</h3>\n<figure>{one.svg}{caption}</figure>\n"


def _events(run: Run) -> str:
    moments = run.metrics.moments
    began = run.metrics.began or 0.0
    body = "".join(_event(one, began) for one in moments[:_MOST_EVENTS])
    more = len(moments) - _MOST_EVENTS
    note = f"<p>{count(more, 'more event')} not shown.</p>" if more > 0 else ""
    head = "<tr><th>at s</th><th>host</th><th>rank</th><th>event</th><th></th></tr>"
    return f'<div class="scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>{note}'


def _event(one: Moment, began: float) -> str:
    rank = one.fields.get("rank", one.worker)
    left_out = ("smdp_event", "event", "time", "host", "rank")
    details = "; ".join(f"{name}: {_shown(value)}" for name, value in one.fields.items() if name not in left_out)
    short = details if len(details) <= _LONGEST_FIELD else f"{details[:_LONGEST_FIELD]}..."
    cells = (f"{one.time - began:.1f}", one.host, "" if rank is None else str(rank), one.name, short)
    return f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in cells)}</tr>"


def _shown(value: Any) -> str:
    """A field; of the ranks of a hang, what they do."""
    entries = value if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value) else []
    return ", ".join(f"rank {one.get('rank')} {one.get('doing')}" for one in entries) or str(value)


def utc_text(one: datetime) -> str:
    return f"{one.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
