"""Deletes stored checkpoints: named ones, or those that newer ones supersede."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.checkpoints.marker import MARKER
from smdp_launch.jobs.checkpoints.refusals import IN_USE, NONE_WHOLE, refusal, unknown_step
from smdp_launch.jobs.checkpoints.stored import Kind, StoredCheckpoint, StoredCheckpoints
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind
from smdp_launch.jobs.service.retry import call_with_retries

_NOT_DELETED = "nothing was deleted"
_BATCH = 1000  # keys, the service's limit


def of_steps(stored: StoredCheckpoints, steps: Sequence[int]) -> list[StoredCheckpoint]:
    """All checkpoints of these steps, the newest first.

    Raises:
        Refused: there is none of one of them.
    """
    known = {one.step for one in stored.checkpoints}
    unknown = [step for step in dict.fromkeys(steps) if step not in known]
    if unknown:
        raise unknown_step(stored, unknown, _NOT_DELETED)
    return [one for one in stored.checkpoints if one.step in steps]


def superseded(
    stored: StoredCheckpoints, keep_last: int, keep_every: int | None = None, *, is_in_use: bool = False
) -> list[StoredCheckpoint]:
    """Those that `smdp_engine.checkpoint` deletes on a host with the same ``keep_last`` and ``keep_every``: the torn
    ones too, but nothing newer than the newest usable one, and nothing without a step. Only whole checkpoints supersede
    a whole one.

    Args:
        is_in_use: a job may write here now. Its newest checkpoint may be incomplete, so if the state of that one is
            unknown, one more is kept.

    Raises:
        Refused: no checkpoint is usable.
    """
    steps = sorted({one.step for one in stored.checkpoints if one.is_usable and one.step is not None}, reverse=True)
    if not steps:
        if not any(one.step is not None for one in stored.checkpoints):
            return []
        message = "no checkpoint here is whole, so none supersedes another"
        raise refusal(NONE_WHOLE, stored.where, message, "name those to delete with --delete STEP", _NOT_DELETED)
    whole = sorted({one.step for one in stored.checkpoints if one.is_whole and one.step is not None}, reverse=True)
    under_way = 1 if is_in_use and steps[0] not in whole else 0
    kept = {
        *steps[: keep_last + under_way],
        *whole[:keep_last],
        *(step for step in steps if keep_every and step % keep_every == 0),
    }
    return [
        one
        for one in stored.checkpoints
        if one.step is not None and one.step < steps[0] and (one.step not in kept or not one.is_usable)
    ]


def require_unused(stored: StoredCheckpoints, chosen: Sequence[StoredCheckpoint], job: str) -> None:
    """For a ``job`` that has not ended: it resumes from the newest usable checkpoint after an interruption, and may
    write newer ones now.

    Raises:
        Refused: one of them is among ``chosen``.
    """
    newest = stored.newest
    for one in chosen:
        if newest is None or (one.step or 0) >= (newest.step or 0):
            message = f"{job} has not ended, and resumes from this checkpoint, or writes it now"
            help_ = f"delete older ones, or stop the job first (smdp-launch stop {job})"
            raise refusal(IN_USE, str(stored.object(one.name)), message, help_, _NOT_DELETED)


def delete(
    clients: Clients,
    stored: StoredCheckpoints,
    chosen: Sequence[StoredCheckpoint],
    deleted: Callable[[StoredCheckpoint], None] = lambda _: None,
) -> None:
    """Delete the checkpoints, the oldest first. The marker of each is the first file that is deleted, so an interrupted
    deletion leaves a torn checkpoint and never one that only looks whole.

    Args:
        deleted: called after each.

    Raises:
        ServiceProblem: S3 refused or did not answer.
        EnvironmentProblem: the credentials have expired.
    """
    for one in reversed(chosen):
        names = [file.name for file in one.files]
        marker = f"{one.name}/{MARKER}"
        if marker in names:
            _delete(clients, stored, [marker])
            names.remove(marker)
        for start in range(0, len(names), _BATCH):
            _delete(clients, stored, names[start : start + _BATCH])
        if one.kind is Kind.SINGLE and stored.latest is not None and stored.latest[1] == one.name:
            _delete(clients, stored, [stored.latest[0].name])
        deleted(one)


def _delete(clients: Clients, stored: StoredCheckpoints, names: Sequence[str]) -> None:
    bucket = stored.location.bucket
    objects = [{"Key": stored.object(name).key} for name in names]

    def call() -> list[dict[str, Any]]:
        """Return the final errors. A temporary error of a key, which S3 reports in a successful answer, is raised, so
        that these keys are deleted again."""
        nonlocal objects
        answer = clients.s3.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
        errors = list(answer.get("Errors", []))
        temporary = [one for one in errors if error_kind(_as_client_error(one)) is not ErrorKind.FINAL]
        if not errors or len(temporary) < len(errors):
            return errors
        objects = [{"Key": one["Key"]} for one in temporary]
        raise _as_client_error(temporary[0])

    errors = call_with_retries(clients, f"{stored.object(names[0])} cannot be deleted", call)
    if errors:
        first = next((one for one in errors if error_kind(_as_client_error(one)) is ErrorKind.FINAL), errors[0])
        help_ = "; you need the permission s3:DeleteObject" if first.get("Code") == "AccessDenied" else ""
        raise ServiceProblem(
            f"s3://{bucket}/{first.get('Key')} cannot be deleted: {first.get('Code')}: {first.get('Message')}{help_}"
        )


def _as_client_error(error: Mapping[str, Any]) -> Exception:
    """The error of one key in the answer to DeleteObjects, as if S3 had refused the request."""
    from botocore.exceptions import ClientError

    details = {"Code": error.get("Code"), "Message": f"{error.get('Message')} ({error.get('Key')})"}
    refused: Exception = ClientError({"Error": details}, "DeleteObjects")
    return refused
