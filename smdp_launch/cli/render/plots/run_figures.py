"""The figures of a run's report, from its series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from smdp_launch.cli.render.plots.charts import Bar, Line, Point, bar_chart, line_chart, phase_timeline
from smdp_launch.notebook.html import text
from smdp_launch.run_metrics.run import HostMetrics, RankMetrics, RunMetrics
from smdp_launch.run_metrics.series import MetricSeries, Window, WindowSeries
from smdp_launch.run_metrics.summary import main_metric, number, shares_of, summed
from smdp_launch.units import count, size

#: Of more ranks, the bars show each host and the extremes, and the timeline the extremes.
_MOST_RANKS = 16
_EXTREMES = 4  # at each end
#: Charts of a report: a script may report any number of metrics.
_MOST_METRICS = 12
_MOST_HOSTS = 6
#: Windows of a row of the timeline.
_COLUMNS = 160


@dataclass(frozen=True)
class Figure:
    """A drawing with a heading; nothing to draw if ``svg`` is empty."""

    title: str
    svg: str
    caption: str = ""


def metric_figures(metrics: RunMetrics) -> list[Figure]:
    """Each metric over steps, the loss first."""
    first = main_metric(metrics)
    names = sorted(metrics.metrics, key=lambda one: one != first)
    return [_metric(name, metrics.metrics[name]) for name in names[:_MOST_METRICS]]


def _metric(name: str, series: MetricSeries) -> Figure:
    points = [(float(one.step), one.mean) for one in series]
    joined = any(one.values > 1 for one in series)
    band = [(float(one.step), one.least, one.greatest) for one in series] if joined else []
    if any(later < before for (before, _), (later, _) in pairwise(points)):  # the script started again
        points, band = sorted(points), sorted(band)
    caption = "Mean of neighbouring steps; the band reaches from the least to the greatest value." if joined else ""
    shown = name[:60]
    return Figure(shown, line_chart([Line(shown, points, band)], f"{shown} over steps", "step"), caption)


def speed_figures(metrics: RunMetrics) -> list[Figure]:
    """Samples and steps a second over time."""
    began = metrics.began or 0.0
    marks = _marks(metrics)
    windows = [one.timing.windows for one in metrics.ranks.values()]
    samples = _summed_rates(windows, "samples", began)
    longest: list[Window] = max(windows, key=len, default=[])
    steps = _rates(longest, "steps", began) or _reported(metrics.progress, began)
    unit = "seconds since the first event"
    return [
        Figure(
            "Samples a second",
            line_chart([Line("samples/s", samples)], "samples/s over time", unit, zero=True, marks=marks),
        ),
        Figure(
            "Steps a second", line_chart([Line("steps/s", steps)], "steps/s over time", unit, zero=True, marks=marks)
        ),
    ]


def _marks(metrics: RunMetrics) -> list[tuple[float, str]]:
    """Faults and failures, in seconds since the first event."""
    began = metrics.began or 0.0
    usual = ("workers_started", "checkpoints_restored")
    failures = (one for one in metrics.moments if one.name not in usual and one.fields.get("what") != "over")
    return [(one.time - began, f"{one.name} on {one.host}") for one in failures][:50]


def _rates(windows: Iterable[Window], name: str, began: float) -> list[Point]:
    found = [
        ((one.begin + one.end) / 2 - began, one.values.get(name, 0.0) / one.seconds)
        for one in windows
        if one.seconds > 0
    ]
    return found if any(rate for _, rate in found) else []


def _reported(progress: MetricSeries, began: float) -> list[Point]:
    """Steps a second between reports, for a job without ``timing`` events."""
    pairs = ((before, later) for before, later in pairwise(progress.bins) if later.time > before.time)
    return [
        (later.time - began, max(0, later.step - before.step) / (later.time - before.time)) for before, later in pairs
    ]


def _summed_rates(ranks: Sequence[Sequence[Window]], name: str, began: float) -> list[Point]:
    """The rate of all ranks together, in as many columns as the longest series has windows."""
    windows = [one for rank in ranks for one in rank]
    columns = min(max(map(len, ranks), default=0), 240)
    first = min((one.begin for one in windows), default=0.0)
    length = max((one.end for one in windows), default=0.0) - first
    if columns == 0 or length <= 0:
        return []
    sums = [0.0] * columns
    for one in windows:
        value = one.values.get(name, 0.0)
        for column, share in _columns_of(one, first, length, columns):
            sums[column] += value * share
    width = length / columns
    found = [(first - began + (index + 0.5) * width, value / width) for index, value in enumerate(sums)]
    return found if any(sums) else []


def _columns_of(window: Window, first: float, length: float, columns: int) -> Iterator[tuple[int, float]]:
    """The columns that the window covers, each with its share of the window."""
    if window.seconds <= 0:
        return
    width = length / columns
    begin = max(0, min(columns - 1, int((window.begin - first) / width)))
    end = max(begin, min(columns - 1, int((window.end - first) / width)))
    for column in range(begin, end + 1):
        left, right = first + column * width, first + (column + 1) * width
        share = (min(window.end, right) - max(window.begin, left)) / window.seconds
        if share > 0:
            yield column, share


def share_figures(metrics: RunMetrics) -> list[Figure]:
    """Stacked bars for all workers, and for each rank, or each host and the extreme ranks."""
    ranks = [one for _, one in sorted(metrics.ranks.items()) if one.timing.windows]
    if not ranks:
        return []
    bars = [Bar("all workers", shares_of(summed(ranks)))] if len(ranks) > 1 else []
    caption = "Shares of the time of the training thread."
    if len(ranks) <= _MOST_RANKS:
        bars += [_bar(f"rank {one.rank}", [one]) for one in ranks]
    else:
        hosts = list(dict.fromkeys(one.host for one in ranks))
        bars += [_bar(host, [one for one in ranks if one.host == host]) for host in hosts[:64]]
        bars += [_bar(f"rank {one.rank}", [one], one.host) for one in _extremes(ranks)]
        caption += " The ranks are those with the least and the most time outside of exchanges."
    return [
        Figure("Shares of each worker", bar_chart([one for one in bars if one.shares], "Where the time went"), caption)
    ]


def _bar(name: str, ranks: Sequence[RankMetrics], after: str = "") -> Bar:
    return Bar(name, shares_of(summed(ranks)), after)


def _extremes(ranks: Sequence[RankMetrics]) -> list[RankMetrics]:
    """The ranks with the least and the most time of their own, by rank."""
    ordered = sorted(ranks, key=lambda one: (1 - shares_of(summed([one])).get("exchanges", 0.0), one.rank))
    chosen = ordered[:_EXTREMES] + ordered[-_EXTREMES:]
    return sorted({one.rank: one for one in chosen}.values(), key=lambda one: one.rank)


def timeline_figures(metrics: RunMetrics) -> list[Figure]:
    """What each rank spent its time on, over time."""
    ranks = [one for _, one in sorted(metrics.ranks.items()) if one.timing.windows]
    shown = ranks if len(ranks) <= _MOST_RANKS else _extremes(ranks)
    began = metrics.began or 0.0
    rows = [(f"rank {one.rank}", _phases(one.timing, began)) for one in shown]
    if not rows:
        return []
    caption = "In each period of time, the shares of the parts of a step."
    if len(shown) < len(ranks):
        caption += f" {len(shown)} of {count(len(ranks), 'rank')}: those with the least and the most time of their own."
    return [Figure("Parts of a step over time", phase_timeline(rows, "Parts of a step over time"), caption)]


def _phases(series: WindowSeries, began: float) -> list[tuple[float, float, Mapping[str, float]]]:
    windows = series.windows
    each = -(-len(windows) // _COLUMNS)
    groups = [windows[index : index + each] for index in range(0, len(windows), each)]
    joined = [_joined(group) for group in groups]
    return [(one.begin - began, one.end - began, shares_of(one.values)) for one in joined]


def _joined(windows: Sequence[Window]) -> Window:
    whole = windows[0]
    for one in windows[1:]:
        whole = whole.joined(one)
    return whole


def host_figures(metrics: RunMetrics) -> list[Figure]:
    """CPU, memory, disk, network and GPU of each host over time; of many hosts, the busiest."""
    hosts = [one for one in metrics.hosts.values() if one.resources.windows]
    shown = sorted(hosts, key=_busy, reverse=True)[:_MOST_HOSTS]
    shown.sort(key=lambda one: (len(one.name), one.name))
    began = metrics.began or 0.0
    caption = f"The {len(shown)} busiest of {count(len(hosts), 'host')}." if len(shown) < len(hosts) else ""

    def chart(title: str, names: Sequence[str], label: Callable[[float], str] = number) -> Figure:
        lines = [Line(one.name, _host_rates(one, names, began)) for one in shown]
        return Figure(title, line_chart(lines, title, "seconds since the first event", label=label, zero=True), caption)

    figures = [
        chart("Busy cores", ["cpu_s"]),
        chart("Disk, bytes read and written a second", ["disk_read", "disk_written"], _bytes),
        chart("Network, bytes sent and received a second", ["net_received", "net_sent"], _bytes),
    ]
    channels = sorted({name for one in shown for name in _channels(one)})[:_MOST_METRICS]
    figures += [chart(f"Channel {name}, bytes read a second", [f"channel_{name}_bytes"], _bytes) for name in channels]
    levels = [*_levels(shown)]
    return [*figures, Figure("Memory and GPUs", levels_table(levels))] if levels else figures


def _host_rates(host: HostMetrics, names: Sequence[str], began: float) -> list[Point]:
    windows = [one for one in host.resources.windows if one.seconds > 0 and any(name in one.values for name in names)]
    each = max(1, -(-len(windows) // 240))
    joined = [_joined(windows[index : index + each]) for index in range(0, len(windows), each)]
    return [
        ((one.begin + one.end) / 2 - began, sum(one.values.get(name, 0.0) for name in names) / one.seconds)
        for one in joined
    ]


def _channels(host: HostMetrics) -> Iterator[str]:
    total = host.resources.total()
    for name in total.values if total is not None else ():
        if name.startswith("channel_") and name.endswith("_bytes"):
            yield name[len("channel_") : -len("_bytes")]


def _busy(host: HostMetrics) -> float:
    total = host.resources.total()
    return total.values.get("cpu_s", 0.0) / total.seconds if total is not None and total.seconds > 0 else 0.0


def _bytes(value: float) -> str:
    return size(int(max(0.0, min(value, 1e18))))


def _levels(hosts: Sequence[HostMetrics]) -> Iterator[Sequence[str]]:
    for one in hosts:
        last = one.last
        cells: list[str] = [one.name, f"{last['cores']:.0f}" if "cores" in last else ""]
        for used, whole in (("memory_used", "memory_total"), ("gpu_memory_used", "gpu_memory_total")):
            cells.append(f"{_bytes(last[used])} of {_bytes(last[whole])}" if used in last and whole in last else "")
        cells.insert(3, _bytes(last["workers_memory"]) if "workers_memory" in last else "")
        cells.append(f"{last['gpus']:.0f}" if "gpus" in last else "")
        cells.append(f"{100 * last['gpu_use']:.0f} %" if "gpu_use" in last else "")
        yield cells


def levels_table(rows: Sequence[Sequence[str]]) -> str:
    """The last memory and GPU use of each host as an HTML table."""
    names = ("host", "cores", "memory", "of the workers", "GPU memory", "GPUs", "GPU use")
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
