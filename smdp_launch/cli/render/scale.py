"""The report of ``scale`` for a person: tables, a plot, the verdict and every assumption."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from smdp_launch.cli.render.next_step import command_for, print_next
from smdp_launch.cli.render.plots.scale_plot import lines
from smdp_launch.cli.render.terminal.bars import QUIET, progress_on_stderr
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows, wrapped
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.plain_text import without_controls
from smdp_launch.scaling.question import ENGINE, SCHEDULES, SMDISTRIBUTED
from smdp_launch.scaling.report import Hosts, Report, verdicts
from smdp_launch.scaling.verdict import Point, definition


class ModelProgress:
    """A bar of the modelled points, if that takes longer than `QUIET`."""

    def __init__(self) -> None:
        self._bar = progress_on_stderr(
            TextColumn("{task.description}", style="bold"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
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
            if done == total or time.monotonic() - self._began < QUIET:
                return
            self._task = self._bar.add_task("modelling", total=total)
            self._bar.start()
        self._bar.update(self._task, completed=done)


def print_report(report: Report, spec: JobSpec, svg: Path | None) -> None:
    """``svg``: the file that the plot is written to."""
    out, err = Console(highlight=False), Console(stderr=True, highlight=False)
    for warning in report.warnings:
        _print_wrapped(err, Text.assemble(("warning: ", "bold yellow"), without_controls(warning)))
    for one in report.hosts:
        out.print(Text(_title(one), "bold"), soft_wrap=True)
        _show_table(out, one)
        out.print()
        for line in lines(one, out.width if out.is_terminal else 80):
            out.print(Text(line), soft_wrap=True)
        out.print()
        for verdict in verdicts(one):
            _print_wrapped(out, Text(verdict))
        out.print()
    _print_wrapped(out, Text(definition(report.worth)))
    if report.price_hint is not None:
        _print_wrapped(out, Text(report.price_hint))
    out.print(Text("\nAssumptions", "bold"))
    print_rows(out, [(one.name, _assumption(one.value, one.origin.value, one.source)) for one in report.assumptions])
    out.print(Text("\nModelled, not measured.", "bold"))
    if svg is not None:
        _print_wrapped(err, Text(f"wrote {svg}"))
    _print_next_plan(report, spec)


def _print_wrapped(console: Console, text: Text) -> None:
    for line in wrapped(text, console.width) if console.is_terminal else [text]:
        console.print(line, soft_wrap=True)


def _assumption(value: str, origin: str, source: str) -> str:
    return f"{value} ({origin}{': ' if source else ''}{source})"


def _title(one: Hosts) -> str:
    price = f", {one.hourly_usd:g} USD an hour each" if one.hourly_usd is not None else ""
    return f"{one.instance_type}: {one.gpus} x {one.gpu} a host{price}; compute {_ms(one.step_s)} ms a step"


def _print_next_plan(report: Report, spec: JobSpec) -> None:
    """Suggest the plan of the first type on the most hosts that are worth their cost with the job's engine."""
    first = report.hosts[0]
    pays = first.stops[SMDISTRIBUTED if spec.engine == "smdistributed" else ENGINE].pays
    changed = {}
    if first.instance_type != spec.compute.instance_type:
        changed["compute.instance_type"] = first.instance_type
    if pays and pays != spec.compute.instance_count:
        changed["compute.instance_count"] = str(pays)
    flags = "".join(f" --set {name}={value}" for name, value in changed.items())
    print_next(f"{command_for('plan', report.job_file)}{flags}")


# -- The table ------------------------------------------------------------------------------------------------


def _show_table(console: Console, one: Hosts) -> None:
    """Print all schedules on one line if the terminal is wide enough; else, and in a pipe, each on its own line."""
    table, title_lines = _fitting(one, console.width) if console.is_terminal else (_long(one, "  "), 1)
    for index, line in enumerate(table):
        console.print(Text(line, "cyan" if index < title_lines else ""), soft_wrap=True)


def _fitting(one: Hosts, columns: int) -> tuple[list[str], int]:
    """The lines that fit, and how many of them are titles."""
    wide = (_wide(one, "  "), _wide(one, " "), _wide(one, " ", leave_out="epoch h"))
    for table, title_lines in (*((each, 2) for each in wide), (_long(one, "  "), 1)):
        if max(map(len, table)) <= columns:
            return table, title_lines
    return _long(one, " "), 1


def _cells(one: Point) -> dict[str, str]:
    cells = {"step ms": _ms(one.step_s), "efficiency": f"{100 * one.efficiency:.0f} %"}
    if one.samples_per_s is not None:
        cells["samples/s"] = f"{one.samples_per_s:,.0f}" if one.samples_per_s >= 100 else f"{one.samples_per_s:.3g}"
    if one.epoch_s is not None:
        hours = one.epoch_s / 3600
        cells["epoch h"] = f"{hours:.3g}" if hours < 100 else f"{hours:,.0f}"
    if one.usd is not None:
        cells["USD/epoch"] = f"{one.usd:,.2f}"
    return cells


def _long(one: Hosts, gap: str) -> list[str]:
    rows = [
        {"hosts": str(point.hosts), "ranks": str(point.ranks), "schedule": name, **_cells(point)}
        for index in range(len(one.points[ENGINE]))
        for name, point in ((name, one.points[name][index]) for name in SCHEDULES)
    ]
    return _aligned([list(rows[0]), *(list(row.values()) for row in rows)], gap, left=2)


def _wide(one: Hosts, gap: str, leave_out: str = "") -> list[str]:
    """With two lines of titles: the schedules, and the columns of each."""
    rows = []
    for index, first in enumerate(one.points[ENGINE]):
        groups = [_cells(one.points[name][index]) for name in SCHEDULES]
        cells = [cell for group in groups for name, cell in group.items() if name != leave_out]
        rows.append([str(first.hosts), str(first.ranks), *cells])
    names = [name for name in _cells(one.points[ENGINE][0]) if name != leave_out]
    table = _aligned([["hosts", "ranks", *names * len(SCHEDULES)], *rows], gap)
    ends = [table[0].rfind(names[-1]) + len(names[-1])]
    for _ in SCHEDULES[1:]:
        ends.append(table[0].rfind(names[-1], 0, ends[-1] - len(names[-1])) + len(names[-1]))
    head = ""
    for name, end in zip(SCHEDULES, reversed(ends), strict=True):
        head += name.rjust(end - len(head))
    return [head, *table]


def _aligned(rows: Sequence[Sequence[str]], gap: str, left: int = -1) -> list[str]:
    """Align columns to the right, except for column ``left``."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return [
        gap.join(
            cell.ljust(width) if index == left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.4g}" if seconds < 10 else f"{seconds * 1000:.0f}"
