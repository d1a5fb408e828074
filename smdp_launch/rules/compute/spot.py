"""Spot capacity, and how long a job waits for capacity."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.derived import bracket_text, default_checkpoint_location, default_max_wait
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.cost import pending_is_limited
from smdp_launch.rules.base.facts import Facts, Problem, rule

_SPOT = ("spot",)
_TYPES = ("compute.instance_type", "compute.fallback_types", "compute.other_groups")


@rule("SMDP501", "spot", "checkpoint")
def spot_needs_checkpoints(facts: Facts) -> Iterator[Problem]:
    if facts.spec.spot is not None and facts.spec.checkpoint is None:
        message = "spot without checkpoints: after each interruption the training starts from the beginning"
        bucket = facts.spec.output.s3.rstrip("/") if facts.has("output.s3") else "s3://BUCKET"
        help_ = f"add `checkpoint: {{s3: {bucket}/checkpoints}}` and save to /opt/ml/checkpoints, or remove `spot:`"
        folder = default_checkpoint_location(facts.document)
        add: dict[Location, str] = {("checkpoint",): f"{{s3: {bracket_text(folder)}}}"} if folder else {}
        yield Problem(_SPOT, message, help_, on_key=True, write=add)


@rule("SMDP502", "spot.max_wait", "compute.max_run")
def spot_waits(facts: Facts) -> Iterator[Problem]:
    spot, max_run = facts.spec.spot, facts.spec.compute.max_run
    if spot is not None and spot.max_wait is None:
        longest = default_max_wait(max_run)
        message = f"spot needs `max_wait`, the seconds for waiting and running together; max_run is {max_run}"
        help_ = f"add `max_wait: {longest}` or more, which allows {longest - max_run} s of waiting"
        yield Problem(_SPOT, message, help_, on_key=True, write={(*_SPOT, "max_wait"): str(longest)})


@rule("SMDP503", "spot.max_wait", "compute.max_run")
def wait_covers_run(facts: Facts) -> Iterator[Problem]:
    spot, max_run = facts.spec.spot, facts.spec.compute.max_run
    if spot is not None and spot.max_wait is not None and spot.max_wait < max_run:
        message = f"max_wait {spot.max_wait} covers waiting and running, but is less than max_run {max_run}"
        longest = default_max_wait(max_run)
        help_ = f"write {longest}, which allows {longest - max_run} s of waiting, or lower `compute.max_run`"
        yield Problem(("spot", "max_wait"), message, help_, replacement=str(longest))


@rule("SMDP512", "spot", "compute.fallback_types")
def fallback_without_spot(facts: Facts) -> Iterator[Problem]:
    if facts.spec.spot is not None and facts.spec.compute.fallback_types is not None:
        message = "fallback_types and spot exclude each other: SageMaker uses the list for on-demand capacity only"
        yield Problem(("compute", "fallback_types"), message, "remove one of the two", on_key=True)


@rule("SMDP512", "overlay", "compute.fallback_types")
def fallback_without_placement(facts: Facts) -> Iterator[Problem]:
    resources = facts.spec.overlay.get("ResourceConfig")
    has_placement = isinstance(resources, dict) and "InstancePlacementConfig" in resources
    if has_placement and facts.spec.compute.fallback_types is not None:
        message = (
            "InstancePlacementConfig and `compute.fallback_types` exclude each other: SageMaker refuses both together"
        )
        at = ("overlay", "ResourceConfig", "InstancePlacementConfig")
        yield Problem(at, message, "remove one of the two", on_key=True)


@rule("SMDP607", "spot.max_wait", "compute.max_pending", severity=Severity.WARNING)
def pending_within_wait(facts: Facts) -> Iterator[Problem]:
    spot, pending = facts.spec.spot, facts.spec.compute.max_pending
    if facts.has(*_TYPES) and not pending_is_limited(facts.spec):
        return  # the next rule reports it
    if spot is not None and spot.max_wait is not None and pending is not None and pending >= spot.max_wait:
        message = f"max_pending {pending} has no effect: spot's max_wait stops the job after {spot.max_wait} s"
        help_ = f"write less than {spot.max_wait}, or remove it"
        yield Problem(("compute", "max_pending"), message, help_, remove=True)


@rule("SMDP607", "compute.max_pending", *_TYPES, severity=Severity.WARNING)
def pending_of_accelerators(facts: Facts) -> Iterator[Problem]:
    if facts.spec.compute.max_pending is not None and not pending_is_limited(facts.spec):
        message = "max_pending has no effect: SageMaker ignores it for types without accelerators"
        yield Problem(("compute", "max_pending"), message, "remove it", on_key=True, remove=True)
