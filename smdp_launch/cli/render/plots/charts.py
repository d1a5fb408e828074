"""Charts of a run as SVG: lines over steps or time, bands of phases, and stacked bars. Every mark is a measured value.

No information depends on a colour alone: a legend names each line, and a ``<title>`` each bar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from smdp_launch.cli.render.plots.svg import LEFT, LETTER, WIDTH, line, text_at, title_of
from smdp_launch.cli.render.plots.timeline import ticks
from smdp_launch.run_metrics.summary import GROUPS, number

_RIGHT, _TOP, _HEIGHT = 20, 12, 150
_BAR, _GAP = 18, 6
#: More points than a chart has columns add nothing but size.
_MOST_POINTS = 480
_KINDS = 6  # of lines that a chart distinguishes
_MOST_ALIKE = 60  # lines that look alike

CHART_STYLE = """\
.plot{--k0:#1a5fb4;--k1:#b35900;--k2:#26734d;--k3:#a01f6c;--k4:#5b4bb5;--k5:#59636e;
--input:#d9822b;--computing:#3f9c63;--exchanges:#4a83c9;--checkpoints:#9a6fc4;--logging:#c45a8b;--evaluation:#5aa6a6;
--other:#a9b0b8}
@media (prefers-color-scheme:dark){.plot{--k0:#79b8ff;--k1:#ffb36b;--k2:#6fd09a;--k3:#ff8fcf;--k4:#b9acff;--k5:#9aa4af;
--input:#c4711f;--computing:#2f8552;--exchanges:#3d74b8;--checkpoints:#8459b3;--logging:#b04a7a;--evaluation:#438f8f;
--other:#6b747e}}
.plot polyline{fill:none;stroke-width:1.6}
.plot .sbest{stroke:var(--k0);stroke-width:3}.plot .strial{stroke:var(--k5)}
.plot .fbest{fill:var(--k0)}.plot .ftrial{fill:var(--k5)}
.plot .band{opacity:.18;stroke:none}
.plot .mark{stroke:#c4262e;stroke-dasharray:4 3}
.plot rect{print-color-adjust:exact;-webkit-print-color-adjust:exact}
""" + "".join(
    [f".plot .s{index}{{stroke:var(--k{index})}}.plot .f{index}{{fill:var(--k{index})}}" for index in range(_KINDS)]
    + [f".plot .{name}{{fill:var(--{name})}}" for name in GROUPS]
)

Point = tuple[float, float]
Label = Callable[[float], str]


@dataclass(frozen=True)
class Line:
    """Args:
    points: x and y, by x.
    band: x, least and greatest y, drawn behind the line.
    """

    name: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class Bar:
    """A bar of shares, which sum to 1."""

    name: str
    shares: Mapping[str, float]
    after: str = ""


def line_chart(
    lines: Sequence[Line],
    name: str,
    unit: str,
    *,
    label: Label = number,
    zero: bool = False,
    marks: Sequence[tuple[float, str]] = (),
    best: str | None = None,
) -> str:
    """Lines over one axis.

    Args:
        unit: of the x axis.
        label: writes a value of the y axis.
        zero: both axes begin at 0.
        marks: vertical lines, each with its label.
        best: the name of the line that stands out from the others, which look alike and may be many; "" without one.
    """
    drawn = [one for one in lines if one.points][: _KINDS if best is None else _MOST_ALIKE]
    if not drawn:
        return ""
    xs = [x for one in drawn for x, _ in one.points]
    ys = [y for one in drawn for _, y in one.points]
    ys += [y for one in drawn for _, least, greatest in one.band for y in (least, greatest)]
    first, last = 0.0 if zero else min(xs), max(xs)
    low, high = _range(0.0 if zero else min(ys), max(ys))
    bottom = _TOP + _HEIGHT

    def x_of(value: float) -> float:
        return round(LEFT + (value - first) * (WIDTH - LEFT - _RIGHT) / ((last - first) or 1.0), 1)

    def y_of(value: float) -> float:
        return round(bottom - (value - low) * _HEIGHT / ((high - low) or 1.0), 1)

    parts = [*_grid(low, high, y_of, label), *_x_axis(first, last, x_of, bottom, unit)]
    for at, text in marks:
        if first <= at <= last:
            parts.append(f'<line class="mark" x1="{x_of(at)}" x2="{x_of(at)}" y1="{_TOP}" y2="{bottom}">')
            parts.append(f"{title_of(text)}</line>")
    kinds = [(str(index), one) for index, one in enumerate(drawn)]
    legend = [(kind, one.name) for kind, one in kinds]
    if best is not None:
        kinds = [
            ("best" if one.name == best else "trial", one) for one in sorted(drawn, key=lambda one: one.name == best)
        ]
        legend = [("best", f"the best: {best}")] if best else []
        legend += [("trial", "the others")]
    for kind, one in kinds:
        parts += _line(one, kind, x_of, y_of)
    height = bottom + 42
    if len(drawn) > 1:
        parts += _line_legend(legend, height)
        height += 22
    return drawing(parts, height, name)


def bar_chart(bars: Sequence[Bar], name: str) -> str:
    """Stacked bars of the groups of phases, one below the other."""
    left = LEFT + 60
    width = WIDTH - left - 120
    parts = []
    for index, bar in enumerate(bars):
        y = index * (_BAR + _GAP)
        parts.append(text_at(left - 8, y + 13, bar.name, "soft", "end"))
        at = float(left)
        for group, share in bar.shares.items():
            if share <= 0:
                continue
            place = f'x="{at:.1f}" y="{y}" width="{share * width:.1f}" height="{_BAR}"'
            shown = f"{share:.0%}".replace("%", " %")
            parts.append(f'<rect class="{group}" {place}>{title_of(f"{bar.name}: {group} {share * 100:.1f} %")}</rect>')
            if share * width > len(shown) * LETTER + 6:
                parts.append(text_at(at + share * width / 2, y + 13, shown, "on", "middle"))
            at += share * width
        parts.append(text_at(left + width + 8, y + 13, bar.after, "soft", "start"))
    height = len(bars) * (_BAR + _GAP) + 8
    return drawing([*parts, *_group_legend(height)], height + 24, name)


def phase_timeline(rows: Sequence[tuple[str, Sequence[tuple[float, float, Mapping[str, float]]]]], name: str) -> str:
    """A row for each rank: in each window of time, the shares of its phases from the bottom up.

    Args:
        rows: name, and windows with begin and end in seconds and shares that sum to 1.
    """
    last = max((end for _, windows in rows for _, end, _ in windows), default=0.0)
    bottom = len(rows) * (_BAR + _GAP)
    scale = (WIDTH - LEFT - _RIGHT) / (last or 1.0)
    parts: list[str] = []
    for index, (title, windows) in enumerate(rows):
        top = index * (_BAR + _GAP)
        parts.append(text_at(LEFT - 8, top + 13, title, "soft", "end"))
        parts += _areas(windows, LEFT, scale, top)
    parts += _x_axis(0.0, last, lambda value: round(LEFT + value * scale, 1), bottom, "seconds")
    return drawing([*parts, *_group_legend(bottom + 44)], bottom + 66, name)


def _areas(
    windows: Sequence[tuple[float, float, Mapping[str, float]]], left: float, scale: float, top: float
) -> Iterator[str]:
    """One path for each group, so that a row of hundreds of windows stays small."""
    paths: dict[str, list[str]] = {group: [] for group in GROUPS}
    for begin, end, shares in windows:
        y = top + _BAR
        x, width = left + begin * scale, max(0.1, (end - begin) * scale)
        for group, share in shares.items():
            height = share * _BAR
            if height >= 0.2:
                paths[group].append(f"M{x:.1f} {y:.1f}h{width:.1f}v{-height:.1f}h{-width:.1f}z")
            y -= height
    for group, drawn in paths.items():
        if drawn:
            yield f'<path class="{group}" d="{"".join(drawn)}">{title_of(group)}</path>'


def _line(one: Line, kind: str, x_of: Callable[[float], float], y_of: Callable[[float], float]) -> Iterator[str]:
    if one.band:
        band = _thinned(one.band)
        there = [f"{x_of(x)},{y_of(greatest)}" for x, _, greatest in band]
        back = [f"{x_of(x)},{y_of(least)}" for x, least, _ in reversed(band)]
        yield f'<polygon class="band f{kind}" points="{" ".join(there + back)}"/>'
    points = _thinned(one.points)
    if len(points) == 1:
        yield f'<circle class="f{kind}" cx="{x_of(points[0][0])}" cy="{y_of(points[0][1])}" r="3"/>'
    else:
        drawn = " ".join(f"{x_of(x)},{y_of(y)}" for x, y in points)
        yield f'<polyline class="s{kind}" points="{drawn}">{title_of(one.name)}</polyline>'


def _thinned(points: Sequence[tuple[float, ...]]) -> Sequence[tuple[float, ...]]:
    """At most `_MOST_POINTS` of the points, the last one among them."""
    if len(points) <= _MOST_POINTS:
        return points
    step = (len(points) - 1) / (_MOST_POINTS - 1)
    return [points[round(index * step)] for index in range(_MOST_POINTS)]


def _range(low: float, high: float) -> tuple[float, float]:
    """The y axis: from 0 where the values are near it, with room above."""
    if low >= 0 and low <= 0.6 * high:
        low = 0.0
    if high - low <= 1e-6 * abs(high):
        pad = abs(high) * 0.1 or 1.0
        return (0.0, 1.0) if high == low == 0 else (low - pad, high + pad)
    return low, high + (high - low) * 0.06


def _round_values(low: float, high: float, most: int) -> list[float]:
    """Round values between ``low`` and ``high``, at equal distances."""
    steps = ticks(high - low, most)
    if len(steps) < 2 or steps[1] <= 0:
        return [low]
    distance = steps[1]
    first = math.ceil(low / distance - 1e-9)
    return [round(index * distance, 12) for index in range(first, math.floor(high / distance + 1e-9) + 1)]


def _grid(low: float, high: float, y_of: Callable[[float], float], label: Label) -> Iterator[str]:
    for tick in _round_values(low, high, 4):
        at = y_of(tick)
        yield line(LEFT, at, WIDTH - _RIGHT, at, "grid")
        yield text_at(LEFT - 8, at + 4, label(tick), "soft", "end")


def _x_axis(first: float, last: float, x_of: Callable[[float], float], bottom: float, unit: str) -> Iterator[str]:
    yield line(LEFT, bottom, WIDTH - _RIGHT, bottom, "axis")
    for tick in _round_values(first, last, 8):
        at = x_of(tick)
        yield text_at(at, bottom + 16, f"{tick:,.6g}", "soft", "end" if at > WIDTH - 2 * _RIGHT else "middle")
    yield text_at((LEFT + WIDTH - _RIGHT) / 2, bottom + 34, unit, "soft", "middle")


def _line_legend(names: Sequence[tuple[str, str]], y: float) -> Iterator[str]:
    at = float(LEFT)
    for kind, name in names:
        yield f'<rect class="f{kind}" x="{at:.1f}" y="{y}" width="14" height="4"/>'
        yield text_at(at + 20, y + 7, name, "soft", "start")
        at += len(name) * LETTER + 40


def _group_legend(y: float) -> Iterator[str]:
    at = float(LEFT)
    for group in GROUPS:
        yield f'<rect class="{group}" x="{at:.1f}" y="{y}" width="12" height="12"/>'
        yield text_at(at + 18, y + 10, group, "soft", "start")
        at += len(group) * LETTER + 40


def drawing(parts: Sequence[str], height: float, name: str) -> str:
    label = title_of(name)
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">'
        f"{label}{''.join(parts)}</svg>"
    )
