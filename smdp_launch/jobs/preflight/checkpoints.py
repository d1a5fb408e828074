"""Check of a checkpoint location that the job shares with other jobs."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.errors import ServiceProblem
from smdp_launch.jobs.preflight.check import Account, NotChecked
from smdp_launch.jobs.status.checkpoint_users import users_of
from smdp_launch.rules.base.facts import Problem


def alone(account: Account) -> Iterator[Problem | str]:
    checkpoint = account.plan.spec.checkpoint
    if checkpoint is None or not checkpoint.shared:
        yield "no shared location"
        return
    try:
        user = next(users_of(account.clients, checkpoint.s3), None)
    except ServiceProblem as error:
        raise NotChecked(str(error)) from error
    if user is not None:
        message = f"{user} has not ended and uses this location: the jobs would overwrite each other's checkpoints"
        help_ = f"wait for its end, run smdp-launch stop {user}, or choose another location"
        yield Problem(("checkpoint", "s3"), message, help_)
        return
    yield "no running job uses the location"
