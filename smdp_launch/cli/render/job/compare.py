"""Two runs side by side, for a person and for a program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from smdp_launch.cli.render.job.verdict import verdict_text
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.diagnosis.time_shares import steady_shares
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.run import Run
from smdp_launch.plain_text import without_controls
from smdp_launch.run_metrics.summary import GROUPS, main_metric, number, numbers_json, totals
from smdp_launch.secret_forms import masked, without_forms
from smdp_launch.units import duration

#: Version of ``compare --json``; raised when a field changes its meaning or is removed.
_VERSION = 1
_LONGEST = 60  # characters of a value in the table
#: Parts of the request that differ between any two jobs, or are not settings.
_NOT_SETTINGS = ("sagemaker_job_name", "SMDP_JOB_TOKEN", "sagemaker_submit_directory")

Pair = tuple[Any, Any]


def print_comparison(first: Run, second: Run) -> None:
    console = Console(highlight=False)
    rows = [*_settings_rows(first, second), *_number_rows(first, second)]
    columns = [
        Column("", [name for name, *_ in rows]),
        Column(f"A {first.name}", [one for _, one, _, _ in rows]),
        Column(f"B {second.name}", [one for _, _, one, _ in rows]),
    ]
    changes = [change for *_, change in rows]
    if any(changes):
        columns.append(Column("B / A", changes, drop=1))
    print_table(console, columns)
    for name, run in (("A", first), ("B", second)):
        verdict = verdict_text(run.metrics)
        if verdict:
            console.print(Text(f"{name}: {without_controls(verdict)}"), soft_wrap=True)


Row = tuple[str, str, str, str]


def _settings_rows(first: Run, second: Run) -> Iterator[Row]:
    for name, (one, other) in differences(first, second).items():
        yield name, _short(one), _short(other), ""


def _number_rows(first: Run, second: Run) -> Iterator[Row]:
    yield "outcome", _outcome(first), _outcome(second), ""
    yield "training", _training(first), _training(second), ""
    of_first, of_second = totals(first.metrics), totals(second.metrics)
    yield "steps", _count(of_first.steps), _count(of_second.steps), ""
    loss = main_metric(first.metrics) or main_metric(second.metrics)
    names = dict.fromkeys([*([loss] if loss else []), *first.metrics.metrics, *second.metrics.metrics])
    for name in names:
        pair = (_last(first, name), _last(second, name))
        yield without_controls(name)[:_LONGEST], _metric(first, name), _metric(second, name), _ratio(*pair)
    rates = {
        "steps/s": (of_first.steps_per_second, of_second.steps_per_second),
        "samples/s": (of_first.samples_per_second, of_second.samples_per_second),
    }
    for name, (one, other) in rates.items():
        yield name, _number(one), _number(other), _ratio(one, other)
    shares = steady_shares(first.metrics), steady_shares(second.metrics)
    for group in GROUPS:
        values = [one.get(group) for one in shares]
        if any(value is not None and value >= 0.005 for value in values):
            yield group, _percent(values[0]), _percent(values[1]), ""
    yield "cost", _cost(first), _cost(second), _ratio(first.usd, second.usd)


def differences(first: Run, second: Run) -> dict[str, Pair]:
    """Settings of the requests that differ, by name. The value of a setting that one job lacks is None. Secrets are
    starred."""
    one, other = (dict(_settings(run.request)) for run in (first, second))
    names = sorted(one.keys() | other.keys())
    return {
        name: (_safe(name, one.get(name)), _safe(name, other.get(name)))
        for name in names
        if one.get(name) != other.get(name)
    }


def _safe(name: str, value: str | None) -> str | None:
    return None if value is None else without_controls(without_forms(masked(name.rpartition(".")[2], value)))


def _settings(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    algorithm, resources = request.get("AlgorithmSpecification", {}), request.get("ResourceConfig", {})
    yield "image", str(algorithm.get("TrainingImage", ""))
    yield from (_leaf("instance", name, value) for name, value in resources.items())
    stopping = request.get("StoppingCondition", {})
    yield from (_leaf("limit", name, value) for name, value in stopping.items())
    yield "spot", str(bool(request.get("EnableManagedSpotTraining", False)))
    for name, value in request.get("HyperParameters", {}).items():
        if name not in _NOT_SETTINGS:
            yield f"hyperparameter {name}", _decoded(value)
    for name, value in request.get("Environment", {}).items():
        if name not in _NOT_SETTINGS:
            yield f"environment {name}", str(value)
    for channel in request.get("InputDataConfig", []):
        name = channel.get("ChannelName", "")
        yield f"channel {name}", json.dumps(channel.get("DataSource", {}), sort_keys=True)
        yield f"channel {name} mode", str(channel.get("InputMode", algorithm.get("TrainingInputMode", "")))


def _leaf(prefix: str, name: str, value: Any) -> tuple[str, str]:
    shown = value if isinstance(value, str | int | float) else json.dumps(value, sort_keys=True, default=str)
    return f"{prefix} {name}", str(shown)


def _decoded(value: str) -> str:
    """A hyperparameter as the job file has it: the service's values are JSON texts."""
    try:
        loaded = json.loads(value)
    except (ValueError, RecursionError):
        return str(value)
    return loaded if isinstance(loaded, str) else str(value)


def _short(value: str | None) -> str:
    if value is None:
        return "-"
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 3]}..."


def _outcome(run: Run) -> str:
    ended = run.description.outcome
    return ended.summary if ended is not None else run.description.secondary


def _training(run: Run) -> str:
    ended = run.description.outcome
    return "-" if ended is None or ended.training_seconds is None else duration(ended.training_seconds)


def _last(run: Run, name: str) -> float | None:
    return run.metrics.metrics[name].last if name in run.metrics.metrics else None


def _metric(run: Run, name: str) -> str:
    """The last value; ``nan since step 50`` if that is no finite number."""
    series = run.metrics.metrics.get(name)
    odd = series is not None and series.not_finite is not None
    return (series.shown() or "-") if series is not None and odd else _number(_last(run, name))


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if abs(value) < 100 else number(value)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _ratio(one: float | None, other: float | None) -> str:
    return f"{other / one:.2f}" if one and other and other / one > 0 else ""


def _cost(run: Run) -> str:
    if run.where == LOCAL:
        return "not billed"
    return "-" if run.usd is None else f"{run.usd:,.2f} USD"


def compare_json(first: Run, second: Run) -> dict[str, Any]:
    changed = {name: {"a": one, "b": other} for name, (one, other) in differences(first, second).items()}
    return {"compare": _VERSION, "settings": changed, "a": _run_json(first), "b": _run_json(second)}


def _run_json(run: Run) -> dict[str, Any]:
    ended = run.description.outcome
    return {
        "job": run.name,
        "where": run.where,
        "training_job_status": run.description.status,
        "training_seconds": ended.training_seconds if ended is not None else None,
        "billable_seconds": ended.billable_seconds if ended is not None else None,
        "usd": run.usd,
        "numbers": numbers_json(run.metrics),
        "verdict": verdict_text(run.metrics) or None,
    }
