"""The timeline of a rehearsal as SVG: a band for each attempt, vertical lines for injected faults, and steps below.

Every mark is a measured value: x in milliseconds, y a reported step. The ``<title>`` of a mark describes it, and the
page colours its class; no information depends on the colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from smdp_launch.cli.render.plots.svg import BASE_STYLE, LEFT, LETTER, WIDTH, text_at, title_of
from smdp_launch.cli.render.plots.timeline import ticks
from smdp_launch.rehearsals.report import Moment, Status, Timeline

#: Units of the drawing. To the right there is room for the name of the status that the job ended with.
RIGHT = 132
_BAND, _GAP, _LINE, _STEPS = 30, 10, 18, 150

PLOT_STYLE = (
    BASE_STYLE
    + """\
.plot{--wait:#dfe3e8;--load:#b6d4f5;--train:#a6dcb3;--gone:#ffc9a3;--store:#d9c8f2;--fault:#c4262e;--step:#1a5fb4}
@media (prefers-color-scheme:dark){.plot{--wait:#3b424b;--load:#234a75;--train:#1f5c33;--gone:#7a3d12;--store:#4f3a78;
--fault:#ff7b72;--step:#79b8ff}}
@media print{.plot{--wait:#e8e8e8;--load:#cfe2f7;--train:#c3e8cc;--gone:#ffd9bf;--store:#e6daf7;--fault:#a40e26;
--step:#1a5fb4}}
.plot rect{stroke:var(--ground);stroke-width:1;fill:var(--wait);print-color-adjust:exact;
-webkit-print-color-adjust:exact}
.plot .Downloading{fill:var(--load)}.plot .Training{fill:var(--train)}.plot .Interrupted{fill:var(--gone)}
.plot .Uploading{fill:var(--store)}
.plot .fault{stroke:var(--fault);stroke-width:1.5;stroke-dasharray:5 3}.plot text.fault-label{fill:var(--fault)}
.plot .restored{fill:var(--step)}.plot .end{stroke:var(--ink);stroke-width:2}
.plot polyline{fill:none;stroke:var(--step);stroke-width:1.5}.plot circle{fill:var(--step)}
"""
)

_STATUSES = {"Downloading", "Training", "Interrupted", "Uploading"}

X = Callable[[float], float]


def plot(timeline: Timeline) -> str:
    """An ``svg`` element, to be used with `PLOT_STYLE`."""
    length = max(1, timeline.length_ms)
    scale = (WIDTH - LEFT - RIGHT) / length

    def x(ms: float) -> float:
        return round(LEFT + ms * scale, 2)

    bands = _LINE * len(timeline.faults) + 8
    below = bands + len(timeline.attempts) * (_BAND + _GAP)
    bottom = below + (_STEPS + _GAP if timeline.steps else 0)
    parts = [
        *_seconds(timeline, x, bands, bottom),
        *(_step_lines(timeline, x, below, bottom) if timeline.steps else ()),
        *_attempts(timeline, x, bands),
        *_faults(timeline.faults, x, bottom),
        *_legend(timeline, bottom + 52),
    ]
    name = "Timeline of the job in seconds; the table below has the same data"
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 72}" role="img"'
        f' aria-label="{name}">{"".join(parts)}</svg>'
    )


def _seconds(timeline: Timeline, x: X, top: int, bottom: int) -> Iterator[str]:
    for tick in ticks(timeline.length_ms / 1000, 10):
        at = x(tick * 1000)
        yield f'<line class="grid" x1="{at}" x2="{at}" y1="{top}" y2="{bottom}"/>'
        yield text_at(at, bottom + 16, f"{tick:g}", "soft second", "middle")
    yield f'<line class="axis" x1="{LEFT}" x2="{x(timeline.length_ms)}" y1="{bottom}" y2="{bottom}"/>'
    yield text_at(x(timeline.length_ms / 2), bottom + 36, "seconds", "soft", "middle")


def _attempts(timeline: Timeline, x: X, top: int) -> Iterator[str]:
    for index, statuses in enumerate(timeline.attempts):
        y = top + index * (_BAND + _GAP) + _GAP // 2
        yield text_at(LEFT - 10, y + 19, f"attempt {index + 1}", "soft", "end")
        for one in statuses:
            yield from _status(one, x, y)
        first, last = statuses[0].start_ms, statuses[-1].end_ms
        is_last = index == len(timeline.attempts) - 1
        restored = [one for one in timeline.restored if first <= one.at_ms and (is_last or one.at_ms < last)]
        yield from (_restored(one, x(one.at_ms), y) for one in restored)


def _status(status: Status, x: X, y: int) -> Iterator[str]:
    start, end = x(status.start_ms), x(status.end_ms)
    if status.end_ms <= status.start_ms:
        label = f"{status.name} at {_seconds_of(status.start_ms)} s"
        yield f'<line class="end" x1="{start}" x2="{start}" y1="{y - 2}" y2="{y + _BAND + 2}">{title_of(label)}</line>'
        yield text_at(start + 8, y + 19, status.name, "", "start")
        return
    label = f"{status.name}: {status.seconds:.3f} s, from {_seconds_of(status.start_ms)} s"
    width = round(end - start, 2)
    place = f'x="{start}" y="{y}" width="{width}" height="{_BAND}"'
    yield f'<rect class="{_style(status.name)}" {place}>{title_of(label)}</rect>'
    if width > len(status.name) * LETTER + 8:
        yield text_at(start + width / 2, y + 19, status.name, "name", "middle")


def _legend(timeline: Timeline, y: int) -> Iterator[str]:
    """The legend: a short band has no room for its name."""
    at = float(LEFT)
    of_style: dict[str, list[str]] = {}
    for name in dict.fromkeys(one.name for statuses in timeline.attempts for one in statuses if one.seconds > 0):
        of_style.setdefault(_style(name), []).append(name)
    for style, names in of_style.items():
        name = ", ".join(names)
        yield f'<rect class="{style}" x="{at}" y="{y}" width="14" height="14"/>'
        yield text_at(at + 20, y + 11, name, "soft", "start")
        at = round(at + len(name) * LETTER + 38, 2)
    if timeline.restored:
        yield f'<polygon class="restored" points="{at},{y + 12} {at + 10},{y + 12} {at + 5},{y + 2}"/>'
        yield text_at(at + 16, y + 11, "checkpoints restored", "soft", "start")


def _style(name: str) -> str:
    return name if name in _STATUSES else "other"


def _restored(moment: Moment, at: float, y: int) -> str:
    points = f"{at - 5},{y + _BAND + 6} {at + 5},{y + _BAND + 6} {at},{y + _BAND - 4}"
    label = f"{moment.host}: {moment.text}, at {_seconds_of(moment.at_ms)} s"
    return f'<polygon class="restored" points="{points}">{title_of(label)}</polygon>'


def _faults(faults: Sequence[Moment], x: X, bottom: int) -> Iterator[str]:
    """Lines across the bands, each with its label on a line of its own above them."""
    for index, one in enumerate(faults):
        at, y = x(one.at_ms), _LINE * (index + 1) - 4
        label = f"{one.text}, at {_seconds_of(one.at_ms)} s"
        is_left = at < WIDTH / 2
        yield f'<line class="fault" x1="{at}" x2="{at}" y1="{y - 10}" y2="{bottom}">{title_of(label)}</line>'
        yield text_at(at + (6 if is_left else -6), y, label, "fault-label", "start" if is_left else "end")


def _step_lines(timeline: Timeline, x: X, top: int, bottom: int) -> Iterator[str]:
    most = max(step for _, step in timeline.steps)
    height = bottom - top - 12

    def y(step: float) -> float:
        return round(bottom - step * height / max(1, most), 2)

    for tick in ticks(most, 4):
        if tick == int(tick):
            yield f'<line class="grid" x1="{LEFT}" x2="{x(timeline.length_ms)}" y1="{y(tick)}" y2="{y(tick)}"/>'
            yield text_at(LEFT - 10, y(tick) + 4, f"{tick:.0f}", "soft", "end")
    yield text_at(LEFT - 48, (top + bottom) / 2 + 4, "step", "soft", "end")
    for points in _by_attempt(timeline):
        line = " ".join(f"{x(at)},{y(step)}" for at, step in points)
        yield f'<polyline points="{line}"/>'
        for at, step in points:
            label = f"step {step} at {_seconds_of(at)} s"
            yield f'<circle cx="{x(at)}" cy="{y(step)}" r="2">{title_of(label)}</circle>'


def _by_attempt(timeline: Timeline) -> Iterator[list[tuple[int, int]]]:
    """The steps of each attempt: no line joins the steps of two attempts."""
    starts = [statuses[0].start_ms for statuses in timeline.attempts[1:]]
    edges = [0, *starts, timeline.length_ms + 1]
    for first, last in pairwise(edges):
        points = [(at, step) for at, step in timeline.steps if first <= at < last]
        if points:
            yield points


def _seconds_of(ms: int) -> str:
    return f"{ms / 1000:.3f}"
