"""The report of a run as an HTML page: one file without scripts and external resources, also for print.

The page is well-formed XML. Every text is escaped: names, metrics and reasons come from the job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from smdp_launch import __version__
from smdp_launch.cli.render.plots.charts import CHART_STYLE
from smdp_launch.cli.render.plots.run_figures import (
    Figure,
    host_figures,
    metric_figures,
    share_figures,
    speed_figures,
    timeline_figures,
)
from smdp_launch.cli.render.plots.svg import BASE_STYLE, DARK, LIGHT, PRINT, properties
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.run import Run
from smdp_launch.notebook.html import rows, text
from smdp_launch.run_metrics.run import Moment
from smdp_launch.run_metrics.summary import about, main_metric, progress_text, shares_text, time_shares, totals_text
from smdp_launch.units import count, duration, titled

Row = tuple[str, str]

#: Events in the table. The others are counted.
_MOST_EVENTS = 200
_LONGEST_FIELD = 400

_STYLE = (
    f":root{{color-scheme:light dark;{properties(LIGHT)};--pass:#1a7f37;--fail:#c4262e}}\n"
    "@media (prefers-color-scheme:dark){\n"
    f":root{{{properties(DARK)};--pass:#4ac26b;--fail:#ff7b72}}}}\n"
    """\
body{background:var(--ground);color:var(--ink);font:15px/1.45 system-ui,"DejaVu Sans",sans-serif;
max-width:62em;margin:2em auto;padding:0 1em;overflow-wrap:anywhere}
h1{font-size:1.35em;margin:0}h2{font-size:1.05em;margin:1.6em 0 .4em;padding-bottom:.2em;
border-bottom:1px solid var(--line)}h3{font-size:.95em;margin:1em 0 .2em;font-weight:600}
.outcome{font-size:1.1em;margin:.8em 0;padding:.6em .9em;border:1px solid var(--line);border-left-width:6px}
.outcome strong{margin-right:.6em}
.good{border-left-color:var(--pass)}.good strong{color:var(--pass)}
.bad{border-left-color:var(--fail)}.bad strong{color:var(--fail)}
.smdp-rows{display:grid;grid-template-columns:minmax(7em,max-content) 1fr;gap:.2em 1.2em;margin:0}
dt{color:var(--soft)}dd{margin:0;white-space:pre-wrap}
p{margin:.3em 0}footer{margin-top:2em;color:var(--soft);font-size:.87em}
figure{margin:0 0 .6em;overflow-x:auto}figcaption{color:var(--soft);font-size:.87em;margin:.2em 0}
svg{display:block;width:100%;min-width:42em;height:auto}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.93em}
th{color:var(--soft);font-weight:normal;text-align:left}
th,td{padding:.15em 1.2em .15em 0;border-bottom:1px solid var(--line);vertical-align:top}
th,td:not(:last-child){white-space:nowrap}
"""
    f"@media print{{:root{{color-scheme:light;{properties(PRINT)};--pass:#116329;--fail:#a40e26}}\n"
    """\
body{max-width:none;margin:0;font-size:11px}h2{margin:.9em 0 .3em}svg{min-width:0}
figure,tr{break-inside:avoid}h2,h3{break-after:avoid}}
""" + BASE_STYLE + CHART_STYLE + ".plot text.on{fill:#fff;font-size:11px}\n"
)


def html_page(run: Run, verdict: Sequence[Row], now: datetime) -> str:
    """Args:
    verdict: what holds the run back, as rows.
    now: when the events were read.
    """
    title = text(f"{run.name}: report")
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
<h1>{text(run.name)}</h1>
{"".join(_sections(run, verdict))}
<footer>{text(f"Written by smdp-launch {__version__} on {_time(now)}. All values are measured.")}</footer>
</body>
</html>
"""


def _sections(run: Run, verdict: Sequence[Row]) -> Iterator[str]:
    yield _outcome(run)
    yield _section("Summary", rows(_summary(run)))
    if verdict:
        yield _section("What limits the speed", rows(verdict))
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
            yield _section(title, "".join(map(_figure, shown)))
    if not any(one.svg for _, figures in named for one in figures):
        yield _section("Measurements", "<p>The job reported no steps and no times.</p>")
    checkpoints = list(_checkpoints(run))
    if checkpoints:
        yield _section("Checkpoints", rows(checkpoints))
    if run.metrics.moments:
        yield _section("Events", _events(run))


def _outcome(run: Run) -> str:
    ended = run.description.outcome
    kind, status = ("open", run.description.secondary) if ended is None else ("bad", ended.summary)
    if ended is not None and ended.status == "Completed":
        kind = "good"
    known = totals_text(run.metrics) if ended is not None else progress_text(run.metrics)
    return f'<p class="outcome {kind}"><strong>{text(status)}</strong>{text(known)}</p>\n'


def _summary(run: Run) -> Iterator[Row]:
    known, metrics = run.description, run.metrics
    ended = known.outcome
    hosts = f"{count(known.hosts, 'host')}{f' of {known.instance_type}' if known.instance_type else ''}"
    where = f"this machine, {count(known.hosts, 'simulated host')}" if run.where == LOCAL else f"{run.where}, {hosts}"
    workers = f", {count(metrics.world_size, 'worker')}" if metrics.world_size is not None else ""
    yield "where", where + workers
    yield "created", _time(known.created)
    yield from titled("statuses", [f"{one.status}, {duration(round(one.seconds))}" for one in known.steps])
    if ended is not None:
        yield from titled("reason", ended.reason.splitlines())
        if ended.training_seconds is not None:
            yield "training", duration(ended.training_seconds)
    yield from _cost(run)
    if metrics.step is not None:
        yield "steps", f"{metrics.step:,}" + (f" of {metrics.steps:,}" if metrics.steps is not None else "")
    name = main_metric(metrics)
    for metric in sorted(metrics.metrics, key=lambda one: one != name):
        last = metrics.metrics[metric].last
        yield metric, f"{last:.6g}" if last is not None else "unknown"
    shares = time_shares(metrics)
    if shares:
        yield "time", shares_text(shares)


def _cost(run: Run) -> Iterator[Row]:
    if run.where == LOCAL:
        yield "cost", "not billed"
    elif run.usd is not None:
        yield "cost", f"{run.usd:,.2f} USD at {run.price:,.4g} USD an hour for each host, without a spot discount"
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


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{text(title)}</h2>\n{content}\n</section>\n"


def _figure(one: Figure) -> str:
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
    details = "; ".join(f"{name}: {value}" for name, value in one.fields.items() if name not in left_out)
    short = details if len(details) <= _LONGEST_FIELD else f"{details[:_LONGEST_FIELD]}..."
    cells = (f"{one.time - began:.1f}", one.host, "" if rank is None else str(rank), one.name, short)
    return f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in cells)}</tr>"


def _time(one: datetime) -> str:
    return f"{one.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
