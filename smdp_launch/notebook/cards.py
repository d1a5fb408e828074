"""The cards of diagnostics, specs, plans and jobs. One view for each type, registered at import."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from smdp_launch.diagnosis.texts import hedged
from smdp_launch.diagnosis.time_shares import time_text
from smdp_launch.diagnosis.verdict import UNKNOWN, diagnose
from smdp_launch.diagnostics import Diagnostic, Diagnostics, Severity, count_problems, shortened
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.jobs.job import Job
from smdp_launch.jobs.status.cost import price_of, usd
from smdp_launch.notebook.html import Row, card, folded, lines, marked, rows
from smdp_launch.notebook_view import html_of
from smdp_launch.planning.plan import Plan
from smdp_launch.planning.summary import summary
from smdp_launch.run_metrics.summary import progress_text, totals_text
from smdp_launch.secret_forms import named_secrets, starred

_MOST_METRICS = 8  # in a card


@html_of.register
def _(one: Diagnostic) -> str:
    return card(one.code, *_parts(one))


@html_of.register
def _(diagnostics: Diagnostics) -> str:
    return card(
        count_problems(diagnostics) or "nothing is wrong", *(part for one in diagnostics for part in _parts(one))
    )


def _parts(one: Diagnostic) -> list[str]:
    places = [one.span, *one.also] if one.span is not None else []
    where = [("at", ", ".join(map(str, places)))] if places else []
    excerpt = [("", one.span.excerpt()[0])] if one.span is not None and one.span.source.strip() else []
    fix = [("help", shortened(one.help))] if one.help else []
    return [
        marked(one.severity.value, f"{one.severity.value}[{one.code}] {shortened(one.message)}"),
        rows([*where, *excerpt, *fix]),
    ]


@html_of.register
def _(spec: JobSpec) -> str:
    fields = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"schema_version", "name"})
    return card(spec.name, rows((key, _in_lines(value)) for key, value in fields.items() if value), beside="job")


def _in_lines(value: Any) -> str:
    """A value as text: one line for each leaf of a mapping."""
    return lines(list(_leaves("", value))) if isinstance(value, dict) else _shown(value)


def _leaves(above: str, value: dict[str, Any]) -> Iterator[Row]:
    for key, one in value.items():
        name = f"{above}.{key}" if above else key
        if isinstance(one, dict) and one:
            yield from _leaves(name, one)
        else:
            yield name, _shown(one)


def _shown(value: Any) -> str:
    return ", ".join(_shown(one) for one in value) if isinstance(value, list) else str(value)


@html_of.register
def _(plan: Plan) -> str:
    secrets = named_secrets(plan.spec.model_dump(mode="json"))
    request = json.dumps(starred(plan.request, secrets), indent=2, ensure_ascii=False)
    problems = [one for one in plan.diagnostics if one.severity is not Severity.NOTE]  # the summary has the notes
    messages = [marked(one.severity.value, f"{one.code} {one.message}") for one in problems]
    shown = [(name, str(starred(value, secrets))) for name, value in summary(plan)]
    return card(plan.job, rows(shown), *messages, folded("the request", request), beside=f"from {plan.job_file}")


@html_of.register
def _(job: Job) -> str:
    """The last known state: a view makes no call."""
    known = [("where", job.where), ("output", job.output or "unknown"), ("last seen", job.last_seen)]
    known += _numbers(job)
    if job.outcome is None:
        return card(job.name, rows(known), beside="job")
    ended = [("ended", job.outcome.summary), ("model", job.outcome.model or "none")]
    reason = [marked("error", job.outcome.reason)] if job.outcome.reason else []
    return card(job.name, rows([*known, *ended]), *reason, beside="job")


def _numbers(job: Job) -> Iterator[Row]:
    """How far, how fast and how much, as of the last call."""
    progress = progress_text(job.numbers) if job.outcome is None else totals_text(job.numbers)
    if progress:
        yield "progress" if job.outcome is None else "speed", progress
    last = [f"{name} {value}" for name, one in job.numbers.metrics.items() if (value := one.shown()) is not None]
    if last and job.outcome is not None:
        yield "metrics", ", ".join(last[:_MOST_METRICS])
    shares = time_text(job.numbers)
    if shares:
        yield "time", shares
    verdict = diagnose(job.numbers)
    # While a job runs, only what can be removed is worth a row; at its end the row answers the question.
    if verdict.cause != UNKNOWN and (verdict.cause != "computing" or job.outcome is not None):
        yield "verdict", hedged(verdict)
    described = job.last_description
    cost = usd(described, price_of(described, job.where)) if described is not None else None
    if cost is not None:
        yield "cost", f"{cost:,.2f} USD{'' if job.outcome is not None else ' so far'}"
