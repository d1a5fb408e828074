"""The figures of a sweep's report: its trials as a table, as parallel coordinates, and their losses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from smdp_launch.cli.render.plots.charts import Line, drawing, line_chart
from smdp_launch.cli.render.plots.run_figures import Figure
from smdp_launch.cli.render.plots.svg import LETTER, WIDTH, line, text_at, title_of
from smdp_launch.jobs.sweeps import SweepState, Trial, value_text
from smdp_launch.jobs.trial_curves import MOST_TRIALS, LossCurves
from smdp_launch.notebook.html import text
from smdp_launch.secret_forms import masked
from smdp_launch.units import count, duration

_TOP, _HEIGHT = 40, 220
_SIDE = 110  # margin at the left and the right, for labels
_MOST_AXES = 8  # of hyperparameters: more have no room for their labels
_MOST_LINES = 500
_MOST_LABELS = 5
_NEAREST = 15 / _HEIGHT  # of two labels
_LONGEST = 400  # letters of a reason

TRIAL_STYLE = """\
.plot polyline.none{stroke-dasharray:5 4}
.plot text.label{paint-order:stroke;stroke:var(--ground);stroke-width:4px;stroke-linejoin:round;fill:var(--soft)}
tr.best td{font-weight:600}td:last-child{white-space:nowrap}
"""


@dataclass(frozen=True)
class _Axis:
    """Args:
    places: of the values, from 0 at the bottom to 1.
    labels: place and text.
    """

    name: str
    places: Mapping[str, float]
    labels: Sequence[tuple[float, str]]


def trials_table(sweep: SweepState) -> str:
    """All trials, the best first and marked. The names have only what follows the name of the sweep."""
    names = _names(sweep)
    heads = ["", "trial", *names, sweep.metric, "status", "time"]
    head = "".join(f"<th>{text(one)}</th>" for one in heads)
    body = "".join(_row(sweep, one, names) for one in sweep.trials)
    note = f"<p>The name of a trial's job is {text(sweep.name)}- and the name here.</p>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}'


def _row(sweep: SweepState, one: Trial, names: Sequence[str]) -> str:
    is_best = one.job == sweep.best
    cells = ["best" if is_best else "", short_name(sweep, one), *(_shown(one, name) for name in names)]
    cells += [f"{one.objective:g}" if one.objective is not None else "none", one.status]
    cells.append(duration(round(one.seconds)) if one.seconds is not None else "")
    mark = ' class="best"' if is_best else ""
    return f"<tr{mark}>{''.join(f'<td>{text(cell)}</td>' for cell in cells)}</tr>"


def short_name(sweep: SweepState, one: Trial) -> str:
    """What follows the name of the sweep."""
    return one.job.removeprefix(f"{sweep.name}-")


def reasons(sweep: SweepState) -> Iterator[tuple[str, str]]:
    """Why trials failed, as rows."""
    for one in sweep.trials:
        if one.reason:
            yield short_name(sweep, one), one.reason if len(one.reason) <= _LONGEST else f"{one.reason[:_LONGEST]}..."


def _names(sweep: SweepState) -> list[str]:
    return sorted({name for one in sweep.trials for name in one.values})


def _shown(one: Trial, name: str) -> str:
    return masked(name, value_text(one.values[name])) if name in one.values else ""


def parallel_figure(sweep: SweepState) -> Figure:
    """An axis for each hyperparameter and one for the result; a line for each trial."""
    trials = sweep.trials[:_MOST_LINES]
    results = {one.job: one.objective for one in trials if one.objective is not None and math.isfinite(one.objective)}
    values = {name: {one.job: _shown(one, name) for one in trials if name in one.values} for name in _names(sweep)}
    varied = [name for name in values if len(set(values[name].values())) > 1]
    if len(trials) < 2 or not varied or not results:
        return Figure("Hyperparameters and results", "")
    axes = [_axis(name, values[name], name in sweep.logarithmic) for name in varied[:_MOST_AXES]]
    result = _numbers(sweep.metric, {job: f"{one!r}" for job, one in results.items()}, False)
    if result is None:
        return Figure("Hyperparameters and results", "")
    axes.append(_upside_down(result) if sweep.goal == "minimize" else result)
    caption = "A line is a trial, and a better result is higher on the last axis. The thick line is the best trial."
    if len(results) < len(trials):
        caption += " A dashed line has no result."
    logarithmic = [name for name in varied[:_MOST_AXES] if name in sweep.logarithmic]
    caption += f" Logarithmic: {', '.join(logarithmic)}." if logarithmic else ""
    left_out = [name for name in values if name not in varied[:_MOST_AXES]]
    caption += f" Only in the table: {', '.join(left_out)}." if left_out else ""
    if len(trials) < len(sweep.trials):
        caption += f" {count(len(sweep.trials) - len(trials), 'more trial')} only in the table."
    return Figure("Hyperparameters and results", _parallel(sweep, trials, axes), caption)


def _axis(name: str, values: Mapping[str, str], logarithmic: bool) -> _Axis:
    return _numbers(name, values, logarithmic) or _categories(name, values)


def _numbers(name: str, values: Mapping[str, str], logarithmic: bool) -> _Axis | None:
    """None if a value is no number."""
    try:
        numbers = {job: float(one) for job, one in values.items()}
    except ValueError:
        return None
    low, high = min(numbers.values()), max(numbers.values())
    if not math.isfinite(high - low):
        return None
    as_log = logarithmic and low > 0

    def scaled(value: float) -> float:
        return math.log(value) if as_log else value

    length = scaled(high) - scaled(low)

    def place(value: float) -> float:
        return (scaled(value) - scaled(low)) / length if length > 0 else 0.5

    chosen = sorted(set(numbers.values()))
    if len(chosen) > _MOST_LABELS:
        chosen = [low, math.sqrt(low) * math.sqrt(high) if as_log else low + (high - low) / 2, high]
    return _Axis(
        name, {job: place(one) for job, one in numbers.items()}, _apart([(place(o), f"{o:.4g}") for o in chosen])
    )


def _categories(name: str, values: Mapping[str, str]) -> _Axis:
    kinds = sorted(set(values.values()))
    places = {one: index / (len(kinds) - 1) if len(kinds) > 1 else 0.5 for index, one in enumerate(kinds)}
    labels = _apart([(places[one], one) for one in kinds])
    return _Axis(name, {job: places[one] for job, one in values.items()}, labels)


def _apart(labels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Without labels that would lie on others. The first and the last stay."""
    if len(labels) < 2:
        return list(labels)
    last, kept = labels[-1], [labels[0]]
    for one in labels[1:-1]:
        if one[0] - kept[-1][0] >= _NEAREST and last[0] - one[0] >= _NEAREST:
            kept.append(one)
    return [*kept, last]


def _upside_down(axis: _Axis) -> _Axis:
    return _Axis(
        axis.name,
        {job: 1 - one for job, one in axis.places.items()},
        [(1 - place, label) for place, label in axis.labels],
    )


def _parallel(sweep: SweepState, trials: Sequence[Trial], axes: Sequence[_Axis]) -> str:
    distance = (WIDTH - 2 * _SIDE) / (len(axes) - 1)
    xs = [_SIDE + index * distance for index in range(len(axes))]
    room = int(distance / LETTER) - 1
    parts: list[str] = []
    for one in reversed(trials):  # the best is drawn last, above the others
        parts += _trial_line(sweep, one, axes, xs)
    for index, (axis, x) in enumerate(zip(axes, xs, strict=True)):
        is_last = index == len(axes) - 1
        parts.append(line(x, _TOP, x, _TOP + _HEIGHT, "axis"))
        parts.append(text_at(x, _TOP - 20, _cut(axis.name, room), "ink", "middle"))
        longest = max(4, room - 3) if 0 < index < len(axes) - 1 else int(_SIDE / LETTER) - 2
        for place, label in axis.labels:
            shift, anchor = (8, "start") if is_last else (-8, "end")
            parts.append(text_at(x + shift, _y(place) + 4, _cut(label, longest), "label", anchor))
    return drawing(parts, _TOP + _HEIGHT + 16, "Hyperparameters and results of the trials")


def _trial_line(sweep: SweepState, one: Trial, axes: Sequence[_Axis], xs: Sequence[float]) -> Iterator[str]:
    points = [f"{x:.1f},{_y(a.places[one.job]):.1f}" for a, x in zip(axes, xs, strict=True) if one.job in a.places]
    has_result = one.job in axes[-1].places
    values = ", ".join(f"{name} {_shown(one, name)}" for name in one.values)
    result = f"{sweep.metric} {one.objective:g}" if one.objective is not None else "no result"
    kind = ("sbest" if one.job == sweep.best else "strial") + ("" if has_result else " none")
    label = title_of(f"{one.job}: {values}; {result}")
    yield f'<polyline class="{kind}" points="{" ".join(points)}">{label}</polyline>'


def _y(place: float) -> float:
    return _TOP + _HEIGHT * (1 - place)


def _cut(label: str, most: int) -> str:
    return label if len(label) <= most else f"{label[: max(1, most - 1)]}…"


def loss_figure(sweep: SweepState, curves: LossCurves) -> Figure:
    """The loss of each trial over time, as far as it is known. The caption says what is left out."""
    known = [Line(one.job, curves.points[one.job]) for one in sweep.trials if one.job in curves.points]
    if curves.metric is None or not known:
        return Figure("Loss over time", "", missing_text(sweep, curves))
    title = f"{curves.metric[:60]} over time"
    svg = line_chart(known, title, "seconds since the trial's first event", best=sweep.best or "")
    return Figure(title, svg, missing_text(sweep, curves))


def missing_text(sweep: SweepState, curves: LossCurves) -> str:
    """The trials that are not in the figure of the losses, and why."""
    silent = [one for one in sweep.trials[:MOST_TRIALS] if one.job not in {*curves.points, *curves.unread}]
    parts = []
    if silent:
        one = len(silent) == 1
        parts.append(
            f"{count(len(silent), 'trial')} reported no loss with {'its' if one else 'their'} steps"
            f" and {'is' if one else 'are'} left out."
        )
    if curves.unread:
        why = next(iter(curves.unread.values()))
        parts.append(f"The log of {count(len(curves.unread), 'trial')} could not be read: {why}.")
    more = len(sweep.trials) - MOST_TRIALS
    if more > 0:
        parts.append(f"Only the logs of the first {MOST_TRIALS} trials of the table were read.")
    return " ".join(parts)
