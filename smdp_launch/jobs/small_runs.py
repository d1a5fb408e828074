"""Failures of local runs that have fewer workers than the job."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.planning.plan import Plan
from smdp_launch.request.batch import world_size
from smdp_launch.source.scan import normal_name
from smdp_launch.source.script.modules import read_with_imports
from smdp_launch.source.script.program import Program
from smdp_launch.units import count

#: What Python says of a quotient that is 0, and libraries of a batch size or a number of steps made from it.
_SIGNS = ("ZeroDivisionError", "ValueError", "AssertionError", "RuntimeError")


def needs_more_workers(plan: Plan, ended: Outcome) -> Iterator[str]:
    """What the script computes with the number of workers and this run had too few for, and the smallest number that
    is enough; nothing where the job did not fail with an error of Python's that this may cause."""
    if plan.local is None or ended.status != "Failed" or not any(one in ended.reason for one in _SIGNS):
        return
    workers, most = len(plan.ranks), world_size(plan.spec)
    scripts = read_with_imports(plan.source, normal_name(plan.spec.script.entry))
    found = [(name, one) for name, file in Program(scripts).files for one in file.divisions]
    short = [(name, one) for name, one in found if workers < one.divisor <= most]
    for name, one in short:
        yield f"{name}, line {one.mark.line}: {one.text} is 0 with {count(workers, 'worker')}; the job has {most}"
    if short:
        smallest = max(one.divisor for _, one in short)
        each = -(-smallest // plan.local.hosts)
        hosts = f"--hosts {plan.local.hosts} --workers-per-host {each}"
        yield f"at least {smallest} workers are needed: {hosts}"
