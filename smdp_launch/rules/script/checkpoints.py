"""Checkpoints that the script saves and SageMaker does not upload."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.base.script_places import place


@rule("SMDP518", "script.entry", "checkpoint", "output.s3", "sweep", severity=Severity.WARNING)
def saved_checkpoints_are_uploaded(facts: Facts) -> Iterator[Problem]:
    """Trials of a sweep are short, and a shared location would mix their checkpoints (SMDP531)."""
    spec = facts.spec
    if spec.checkpoint is not None or spec.sweep is not None:
        return
    found = next(((name, mark) for name, file in facts.program.files for mark in file.kept), None)
    if found is None:
        return
    span = place(facts, *found)
    message = "the job file has no `checkpoint`, so the checkpoints that the script saves are lost when the job ends"
    help_ = f"add `checkpoint: {{s3: {spec.output.s3.rstrip('/')}/checkpoints}}` to the job file"
    yield Problem((), message, help_, text=span.source[span.column - 1 : span.end_column - 1], place=span)
