"""How a job scales, for a person: tables, a plot, the verdict, and every assumption."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from smdp_launch.cli.render.console import Console, without_controls
from smdp_launch.cli.render.next import command_for, say_next
from smdp_launch.cli.render.rows import print_rows, wrapped
from smdp_launch.cli.render.scale_plot import lines
from smdp_launch.scaling.question import ENGINE, SCHEDULES
from smdp_launch.scaling.report import Hosts, Report, verdicts
from smdp_launch.scaling.verdict import Point, definition

#: Seconds after which a person wants to see that something happens.
_SILENT = 2.0
_GAP = "  "


class ModelProgress:
    """How many questions the model has answered, on standard error, if that is a terminal and it takes its time."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", style="bold"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal or console.color_system is None,
        )
        self._task: TaskID | None = None
        self._began = time.monotonic()

    def __enter__(self) -> ModelProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._bar.stop()

    def show(self, done: int, total: int) -> None:
        if self._task is None:
            if done == total or time.monotonic() - self._began < _SILENT:
                return
            self._task = self._bar.add_task("modelling", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done)


def show_report(report: Report, hosts: int, svg: Path | None) -> None:
    """``hosts`` is the job's own number of them."""
    out, err = Console(highlight=False), Console(stderr=True, highlight=False)
    for warning in report.warnings:
        _say(err, Text.assemble(("warning: ", "bold yellow"), without_controls(warning)))
    for one in report.hosts:
        out.print(Text(_title(one), "bold"), soft_wrap=True)
        _show_table(out, one)
        out.print()
        for line in lines(one, out.width if out.is_terminal else 80):
            out.print(Text(line), soft_wrap=True)
        out.print()
        for told in verdicts(one):
            _say(out, Text(told))
        out.print()
    _say(out, Text(definition(report.worth)))
    if report.price_hint is not None:
        _say(out, Text(report.price_hint))
    out.print(Text("\nAssumptions", "bold"))
    print_rows(out, [(one.name, _told(one.value, one.origin.value, one.source)) for one in report.assumptions])
    out.print(Text("\nModelled, not measured.", "bold"))
    if svg is not None:
        _say(err, Text(f"{svg} written"))
    _say_next(report, hosts)


def _say(console: Console, text: Text) -> None:
    for line in wrapped(text, console.width) if console.is_terminal else [text]:
        console.print(line, soft_wrap=True)


def _told(value: str, origin: str, source: str) -> str:
    return f"{value} ({origin}{': ' if source else ''}{source})"


def _title(one: Hosts) -> str:
    price = f", {one.hourly_usd:g} USD an hour each" if one.hourly_usd is not None else ""
    return f"{one.instance_type}: {one.gpus} x {one.gpu} a host{price}; a step alone {_ms(one.step_s)} ms"


def _say_next(report: Report, hosts: int) -> None:
    pays = report.hosts[0].stops[ENGINE].pays
    if pays and pays != hosts:
        say_next(f"{command_for('plan', report.job_file)} --set compute.instance_count={pays}")
    else:
        say_next(command_for("plan", report.job_file))


# -- The table ------------------------------------------------------------------------------------------------


def _show_table(console: Console, one: Hosts) -> None:
    """All schedules on one line of a wide terminal; else, and in a pipe, each on a line of its own."""
    wide = list(_wide(one))
    if not (console.is_terminal and max(map(len, wide)) <= console.width):
        wide = list(_long(one))
    for index, line in enumerate(wide):
        console.print(Text(line, "cyan" if index == 0 or line.startswith(" " * 14 + ENGINE) else ""), soft_wrap=True)


def _columns(points: Sequence[Point]) -> list[str]:
    names = ["step ms", "efficiency"]
    if points[0].samples_per_s is not None:
        names.append("samples/s")
    if points[0].epoch_s is not None:
        names.append("epoch h")
    if points[0].usd is not None:
        names.append("USD/epoch")
    return names


def _cells(one: Point) -> list[str]:
    cells = [_ms(one.step_s), f"{100 * one.efficiency:.0f} %"]
    if one.samples_per_s is not None:
        cells.append(f"{one.samples_per_s:,.0f}" if one.samples_per_s >= 100 else f"{one.samples_per_s:.3g}")
    if one.epoch_s is not None:
        cells.append(f"{one.epoch_s / 3600:,.3g}" if one.epoch_s < 360000 else f"{one.epoch_s / 3600:,.0f}")
    if one.usd is not None:
        cells.append(f"{one.usd:,.2f}")
    return cells


def _long(one: Hosts) -> Iterator[str]:
    names = ["hosts", "ranks", "schedule", *_columns(one.points[ENGINE])]
    rows = [
        [str(points[index].hosts), str(points[index].ranks), name, *_cells(points[index])]
        for index in range(len(one.points[ENGINE]))
        for name, points in ((name, one.points[name]) for name in SCHEDULES)
    ]
    yield from _aligned([names, *rows], left=2)


def _wide(one: Hosts) -> Iterator[str]:
    columns = _columns(one.points[ENGINE])
    rows = [
        [
            str(first.hosts),
            str(first.ranks),
            *(cell for name in SCHEDULES for cell in _cells(one.points[name][index])),
        ]
        for index, first in enumerate(one.points[ENGINE])
    ]
    made = list(_aligned([["hosts", "ranks", *columns * len(SCHEDULES)], *rows]))
    group = (len(made[0]) - len("hosts  ranks")) // len(SCHEDULES)
    yield " " * len("hosts  ranks") + "".join(f"{name:>{group}}" for name in SCHEDULES)
    yield from made


def _aligned(rows: Sequence[Sequence[str]], left: int = -1) -> Iterator[str]:
    """In columns, to the right but for the ``left``th."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        cells = (
            cell.ljust(width) if index == left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield _GAP.join(cells).rstrip()


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.4g}" if seconds < 10 else f"{seconds * 1000:.0f}"
