"""Spot capacity, and how long a job waits for any."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.derived import as_written, checkpoints_beside, longest_wait
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.rules.base.facts import Facts, Finding, rule

_SPOT = ("spot",)


@rule("SMDP501", "spot", "checkpoint")
def spot_keeps_checkpoints(facts: Facts) -> Iterator[Finding]:
    if facts.spec.spot is not None and facts.spec.checkpoint is None:
        message = "spot without checkpoints: each interruption starts the training again from nothing"
        bucket = facts.spec.output.s3.rstrip("/") if facts.has("output.s3") else "s3://BUCKET"
        help_ = f"add `checkpoint: {{s3: {bucket}/checkpoints}}` and save to /opt/ml/checkpoints, or leave `spot:` out"
        folder = checkpoints_beside(facts.document)
        add: dict[Location, str] = {("checkpoint",): f"{{s3: {as_written(folder)}}}"} if folder else {}
        yield Finding(_SPOT, message, help_, on_key=True, write=add)


@rule("SMDP502", "spot.max_wait", "compute.max_run")
def spot_waits(facts: Facts) -> Iterator[Finding]:
    spot, max_run = facts.spec.spot, facts.spec.compute.max_run
    if spot is not None and spot.max_wait is None:
        longest = longest_wait(max_run)
        message = f"spot needs `max_wait`, the seconds for waiting and running together, and the job may run {max_run}"
        help_ = f"add `max_wait: {longest}`, which waits {longest - max_run} s beyond max_run, or more"
        yield Finding(_SPOT, message, help_, on_key=True, write={(*_SPOT, "max_wait"): str(longest)})


@rule("SMDP503", "spot.max_wait", "compute.max_run")
def wait_covers_run(facts: Facts) -> Iterator[Finding]:
    spot, max_run = facts.spec.spot, facts.spec.compute.max_run
    if spot is not None and spot.max_wait is not None and spot.max_wait < max_run:
        message = f"max_wait {spot.max_wait} covers waiting and running, and is less than max_run {max_run}"
        longest = longest_wait(max_run)
        help_ = f"write {longest}, which waits {longest - max_run} s beyond max_run, or lower `compute.max_run`"
        yield Finding(("spot", "max_wait"), message, help_, replacement=str(longest))


@rule("SMDP512", "spot", "compute.fallback_types")
def fallback_without_spot(facts: Facts) -> Iterator[Finding]:
    if facts.spec.spot is not None and facts.spec.compute.fallback_types is not None:
        message = "fallback_types and spot exclude each other: the ranked list takes on-demand capacity only"
        yield Finding(("compute", "fallback_types"), message, "leave one of the two out", on_key=True)


@rule("SMDP607", "spot.max_wait", "compute.max_pending", severity=Severity.WARNING)
def pending_within_wait(facts: Facts) -> Iterator[Finding]:
    spot, pending = facts.spec.spot, facts.spec.compute.max_pending
    if spot is not None and spot.max_wait is not None and pending is not None and pending >= spot.max_wait:
        message = f"max_pending {pending} is never reached: spot's max_wait ends the job after {spot.max_wait} s"
        help_ = f"write less than {spot.max_wait}, or leave it out"
        yield Finding(("compute", "max_pending"), message, help_, remove=True)
