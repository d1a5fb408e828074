"""How a job scales, for a person: tables, a plot, the verdict, and every assumption."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from smdp_launch.cli.render.next import command_for, say_next
from smdp_launch.cli.render.plots.scale_plot import lines
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows, wrapped
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.plain_text import without_controls
from smdp_launch.scaling.question import ENGINE, SCHEDULES, SMDISTRIBUTED
from smdp_launch.scaling.report import Hosts, Report, verdicts
from smdp_launch.scaling.verdict import Point, definition

#: Seconds after which a person wants to see that something happens.
_SILENT = 2.0


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


def show_report(report: Report, spec: JobSpec, svg: Path | None) -> None:
    """``svg`` is the file of the drawing, if there is one."""
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
    _say_next(report, spec)


def _say(console: Console, text: Text) -> None:
    for line in wrapped(text, console.width) if console.is_terminal else [text]:
        console.print(line, soft_wrap=True)


def _told(value: str, origin: str, source: str) -> str:
    return f"{value} ({origin}{': ' if source else ''}{source})"


def _title(one: Hosts) -> str:
    price = f", {one.hourly_usd:g} USD an hour each" if one.hourly_usd is not None else ""
    return f"{one.instance_type}: {one.gpus} x {one.gpu} a host{price}; a step alone {_ms(one.step_s)} ms"


def _say_next(report: Report, spec: JobSpec) -> None:
    """The plan of the first type on the most hosts that pay with the job's own engine."""
    first = report.hosts[0]
    pays = first.stops[SMDISTRIBUTED if spec.engine == "smdistributed" else ENGINE].pays
    changed = {}
    if first.instance_type != spec.compute.instance_type:
        changed["compute.instance_type"] = first.instance_type
    if pays and pays != spec.compute.instance_count:
        changed["compute.instance_count"] = str(pays)
    flags = "".join(f" --set {name}={value}" for name, value in changed.items())
    say_next(f"{command_for('plan', report.job_file)}{flags}")


# -- The table ------------------------------------------------------------------------------------------------


def _show_table(console: Console, one: Hosts) -> None:
    """All schedules on one line of a terminal that is wide enough; else, and in a pipe, each on a line of its own."""
    made, heads = _fitting(one, console.width) if console.is_terminal else (_long(one, "  "), 1)
    for index, line in enumerate(made):
        console.print(Text(line, "cyan" if index < heads else ""), soft_wrap=True)


def _fitting(one: Hosts, columns: int) -> tuple[list[str], int]:
    """The lines, and how many of them are heads."""
    wide = (_wide(one, "  "), _wide(one, " "), _wide(one, " ", leave_out="epoch h"))
    for made, heads in (*((each, 2) for each in wide), (_long(one, "  "), 1)):
        if max(map(len, made)) <= columns:
            return made, heads
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
        {"hosts": str(found.hosts), "ranks": str(found.ranks), "schedule": name, **_cells(found)}
        for index in range(len(one.points[ENGINE]))
        for name, found in ((name, one.points[name][index]) for name in SCHEDULES)
    ]
    return _aligned([list(rows[0]), *(list(row.values()) for row in rows)], gap, left=2)


def _wide(one: Hosts, gap: str, leave_out: str = "") -> list[str]:
    """Two heads: the schedules, and the columns of each."""
    rows = []
    for index, first in enumerate(one.points[ENGINE]):
        groups = [_cells(one.points[name][index]) for name in SCHEDULES]
        cells = [cell for group in groups for name, cell in group.items() if name != leave_out]
        rows.append([str(first.hosts), str(first.ranks), *cells])
    names = [name for name in _cells(one.points[ENGINE][0]) if name != leave_out]
    made = _aligned([["hosts", "ranks", *names * len(SCHEDULES)], *rows], gap)
    ends = [made[0].rfind(names[-1]) + len(names[-1])]
    for _ in SCHEDULES[1:]:
        ends.append(made[0].rfind(names[-1], 0, ends[-1] - len(names[-1])) + len(names[-1]))
    head = ""
    for name, end in zip(SCHEDULES, reversed(ends), strict=True):
        head += name.rjust(end - len(head))
    return [head, *made]


def _aligned(rows: Sequence[Sequence[str]], gap: str, left: int = -1) -> list[str]:
    """In columns, to the right but for the ``left``th."""
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
