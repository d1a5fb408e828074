"""Hangs, and when a failed job is resumed."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.jobfile.model.derived import bracket_text, default_checkpoint_location
from smdp_launch.jobfile.model.supervision import Hang
from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.rules.base.facts import Facts, Problem, rule


@rule("SMDP540", "retries", "checkpoint")
def retries_need_checkpoints(facts: Facts) -> Iterator[Problem]:
    if facts.spec.retries is not None and facts.spec.checkpoint is None:
        message = "retries without checkpoints: each retry would train from the beginning"
        bucket = facts.spec.output.s3.rstrip("/") if facts.has("output.s3") else "s3://BUCKET"
        help_ = f"add `checkpoint: {{s3: {bucket}/checkpoints}}` and save to /opt/ml/checkpoints, or remove `retries:`"
        folder = default_checkpoint_location(facts.document)
        add: dict[Location, str] = {("checkpoint",): f"{{s3: {bracket_text(folder)}}}"} if folder else {}
        yield Problem(("retries",), message, help_, on_key=True, write=add)


@rule("SMDP541", "retries.on", "hang.action")
def retried_hang_ends_the_job(facts: Facts) -> Iterator[Problem]:
    retries, hang = facts.spec.retries, facts.spec.hang
    action = hang.action if hang is not None else None
    if retries is not None and "hang" in retries.on and action in ("report", "ignore"):
        message = f"a job that hangs is never resumed: action {action} lets it run until its maximum run time"
        yield Problem(("hang", "action"), message, "write end, or remove hang from `retries.on`", replacement="end")


@rule("SMDP542", "retries.on", "spot", severity=Severity.WARNING)
def spot_is_retried_on_spot(facts: Facts) -> Iterator[Problem]:
    retries = facts.spec.retries
    if retries is not None and "spot" in retries.on and facts.spec.spot is None:
        message = "spot in `retries.on` has no effect: the job does not run on spot capacity"
        yield Problem(("retries", "on"), message, "remove it, or add `spot:`")


@rule("SMDP543", "engine", "hang", "retries.on")
def hangs_are_found_by_this_engine(facts: Facts) -> Iterator[Problem]:
    engine, retries = facts.spec.engine, facts.spec.retries
    if engine == "native":
        return
    for name in Hang.model_fields:
        if getattr(facts.spec.hang, name, None) is not None:
            message = f"{name} has no effect with engine {engine}: only engine native finds hangs"
            help_ = "remove it, or choose `engine: native`"
            yield Problem(("hang", name), message, help_, on_key=True, remove=True)
    if retries is not None and "hang" in retries.on:
        message = f"hang in `retries.on` has no effect with engine {engine}: only engine native finds hangs"
        yield Problem(("retries", "on"), message, "remove it, or choose `engine: native`")
