"""Efficiency over hosts, as text and as SVG. Every mark is a modelled point; lines only join the points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from smdp_launch.cli.render.plots.svg import (
    BASE_STYLE,
    DARK,
    LEFT,
    LIGHT,
    PRINT,
    WIDTH,
    line,
    resolved,
    text_at,
    title_of,
)
from smdp_launch.notebook.html import text
from smdp_launch.scaling.question import SCHEDULES
from smdp_launch.scaling.report import Hosts, Report
from smdp_launch.scaling.verdict import Point
from smdp_launch.units import count

_ROWS = 11  # of the text, one for each tenth
_WIDEST = 100
_AXIS = 7  # columns before the drawing
_LETTERS = dict(zip(SCHEDULES, "esr", strict=True))
_SEVERAL = "*"

_RIGHT, _TOP, _HEIGHT, _PANEL = 190, 34, 200, 300
_LIGHT = {**LIGHT, "a": "#1a5fb4", "b": "#a15c00", "c": "#1a7f37"}
_DARK = {**DARK, "a": "#79b8ff", "b": "#ffb454", "c": "#4ac26b"}
_RULES = (
    BASE_STYLE
    + """\
.plot .ground{fill:var(--ground)}.plot .worth{stroke:var(--soft);stroke-dasharray:1 4}
.plot .s0{stroke:var(--a)}.plot .s1{stroke:var(--b)}.plot .s2{stroke:var(--c)}
.plot .m0{fill:var(--a)}.plot .m1{fill:var(--b)}.plot .m2{fill:var(--c)}
"""
)
_STYLE = (
    '.plot{font-family:system-ui,"DejaVu Sans",sans-serif}.plot polyline{fill:none}.plot .head{font-weight:bold}\n'
    ".s0,.s1,.s2{stroke-width:2}.s1{stroke-dasharray:7 4}.s2{stroke-dasharray:2 3}\n"
    f"{resolved(_RULES, _LIGHT)}@media (prefers-color-scheme:dark){{\n{resolved(_RULES, _DARK)}}}\n"
    f"@media print{{\n{resolved(_RULES, {**_LIGHT, **PRINT})}}}\n"
)


def lines(one: Hosts, width: int) -> Iterator[str]:
    """A plot of at most ``width`` columns. Host counts are equally spaced."""
    columns = max(1, min(width, _WIDEST) - _AXIS)
    counts = [str(point.hosts) for point in one.points[SCHEDULES[0]]]
    places = _places(counts, columns)
    grid = [[" "] * columns for _ in range(_ROWS)]
    for name in SCHEDULES:
        for at, point in zip(places, one.points[name], strict=True):
            row = grid[round((1 - point.efficiency) * (_ROWS - 1))]
            row[at] = _LETTERS[name] if row[at] == " " else _SEVERAL
    yield "efficiency"
    for index, row in enumerate(grid):
        share = f"{100 - 10 * index:>3} %"
        yield f"{share} |{''.join(row)}".rstrip()
    yield f"{'':5} +{'-' * (places[-1] + 1)}"
    yield f"hosts  {_labels(counts, places, columns)}"
    yield "".join(f"{_LETTERS[name]} = {name}, " for name in SCHEDULES) + f"{_SEVERAL} = several"


def _places(counts: Sequence[str], columns: int) -> list[int]:
    """The column of each host count."""
    if len(counts) == 1:
        return [min(columns - 1, 2)]
    gap = min(12.0, (columns - 4) / (len(counts) - 1))
    return [round(1 + index * gap) for index in range(len(counts))]


def _labels(counts: Sequence[str], places: Sequence[int], columns: int) -> str:
    """The labels below their columns; labels without room are omitted."""
    line = [" "] * columns
    free = 0
    for label, at in zip(counts, places, strict=True):
        start = max(0, at - (len(label) - 1) // 2)
        if start >= free and start + len(label) <= columns:
            line[start : start + len(label)] = label
            free = start + len(label) + 1
    return "".join(line).rstrip()


# -- SVG ------------------------------------------------------------------------------------------------------


def svg_document(report: Report) -> str:
    """An SVG file for light and dark backgrounds, with a panel for each instance type."""
    height = _PANEL * len(report.hosts) + 24
    panels = "".join("".join(_panel(one, index * _PANEL, report.worth)) for index, one in enumerate(report.hosts))
    name = f"Efficiency over hosts of {report.job_file}, modelled"
    foot = "Modelled, not measured: smdp-launch scale prints every assumption."
    return (
        f'<svg class="plot" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        f' aria-label="{text(name)}">\n<style>\n{_STYLE}</style>\n'
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>\n{panels}'
        f"{text_at(LEFT, height - 8, foot, 'soft', 'start')}\n</svg>\n"
    )


def _panel(one: Hosts, top: int, worth: float) -> Iterator[str]:
    points = one.points[SCHEDULES[0]]
    bottom = top + _TOP + _HEIGHT
    gap = (WIDTH - LEFT - _RIGHT) / max(1, len(points) - 1)
    right = WIDTH - _RIGHT

    def x(index: int) -> float:
        return round(LEFT + index * gap, 2)

    def y(share: float) -> float:
        return round(bottom - share * _HEIGHT, 2)

    yield text_at(
        LEFT, top + 18, f"{one.instance_type}: efficiency over hosts of {one.gpus} {one.gpu}", "head", "start"
    )
    for tenth in range(0, 11, 2):
        yield line(LEFT, y(tenth / 10), right, y(tenth / 10), "grid")
        yield text_at(LEFT - 10, y(tenth / 10) + 4, f"{tenth * 10} %", "soft", "end")
    yield line(LEFT, y(worth), right, y(worth), "worth")
    for index, point in enumerate(points):
        yield text_at(x(index), bottom + 18, str(point.hosts), "soft", "middle")
    yield text_at((LEFT + right) / 2, bottom + 38, "hosts", "soft", "middle")
    yield line(LEFT, bottom, right, bottom, "axis")
    for number, name in enumerate(SCHEDULES):
        yield from _curve(name, one.points[name], number, x, y)
        at = top + _TOP + 14 + 22 * number
        yield line(right + 14, at - 4, right + 42, at - 4, f"s{number}")
        yield text_at(right + 50, at, name, "", "start")


def _curve(
    name: str, points: Sequence[Point], number: int, x: Callable[[int], float], y: Callable[[float], float]
) -> Iterator[str]:
    joined = " ".join(f"{x(at)},{y(one.efficiency)}" for at, one in enumerate(points))
    yield f'<polyline class="s{number}" points="{joined}"/>'
    for at, point in enumerate(points):
        share, step = f"{100 * point.efficiency:.1f} %", f"a step of {point.step_s * 1000:.4g} ms"
        label = f"{name}, {count(point.hosts, 'host')}: {share}, {step}"
        yield f'<circle class="m{number}" cx="{x(at)}" cy="{y(point.efficiency)}" r="3.5">{title_of(label)}</circle>'
