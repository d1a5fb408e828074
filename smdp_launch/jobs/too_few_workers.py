"""Explains failures of local runs that are caused by fewer workers than the job has."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.jobs.records.outcome import Outcome
from smdp_launch.planning.plan import Plan
from smdp_launch.request.batch import world_size
from smdp_launch.source.scan import normal_name
from smdp_launch.source.script.modules import read_with_imports
from smdp_launch.source.script.program import Program
from smdp_launch.units import count

#: Errors that Python raises for a quotient of 0, and libraries for a batch size or a number of steps computed from it.
_POSSIBLE_ERRORS = ("ZeroDivisionError", "ValueError", "AssertionError", "RuntimeError")


def needs_more_workers(plan: Plan, ended: Outcome) -> Iterator[str]:
    """Yield the divisions of the script that are 0 with this run's number of workers, and the smallest number that is
    enough. Yield nothing if the job did not fail with an error that this can cause."""
    if plan.local is None or ended.status != "Failed" or not any(one in ended.reason for one in _POSSIBLE_ERRORS):
        return
    workers, most = len(plan.ranks), world_size(plan.spec)
    scripts = read_with_imports(plan.source, normal_name(plan.spec.script.entry))
    divisions = [(name, one) for name, file in Program(scripts).files for one in file.divisions]
    zero = [(name, one) for name, one in divisions if workers < one.divisor <= most]
    for name, one in zero:
        yield f"{name}, line {one.mark.line}: {one.text} is 0 with {count(workers, 'worker')}; the job has {most}"
    if zero:
        smallest = max(one.divisor for _, one in zero)
        each = -(-smallest // plan.local.hosts)
        hosts = f"--hosts {plan.local.hosts} --workers-per-host {each}"
        yield f"at least {smallest} workers are needed: {hosts}"
