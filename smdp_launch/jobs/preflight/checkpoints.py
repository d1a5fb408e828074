"""Check of a checkpoint location that the job shares with other jobs."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.preflight.check import Account, NotChecked
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind
from smdp_launch.jobs.status.checkpoint_users import ALLOW_SEARCH, users_of
from smdp_launch.rules.base.facts import Problem


def alone(account: Account) -> Iterator[Problem | str]:
    checkpoint = account.plan.spec.checkpoint
    if checkpoint is None or not checkpoint.shared:
        yield "no shared location"
        return
    try:
        user = next(users_of(account.clients, checkpoint.s3, account.plan.job), None)
    except ServiceProblem as error:
        if error_kind(error.__cause__) is not ErrorKind.FINAL:
            raise NotChecked(str(error)) from error
        yield Problem(
            ("checkpoint", "s3"), f"whether a running job uses this location is unknown: {error}", ALLOW_SEARCH
        )
        return
    if user is not None:
        message = f"{user} has not ended and uses this location: the jobs would overwrite each other's checkpoints"
        help_ = f"wait for its end, run smdp-launch stop {user}, or choose another location"
        yield Problem(("checkpoint", "s3"), message, help_)
        return
    yield "no running job uses the location"
