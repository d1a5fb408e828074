"""Refusals of the commands on stored checkpoints, each with its code (docs/errors)."""

from __future__ import annotations

from smdp_launch.diagnostics import Diagnostic
from smdp_launch.errors import Refused
from smdp_launch.jobs.checkpoints.stored import StoredCheckpoint, StoredCheckpoints
from smdp_launch.units import listed

TORN = "SMDP704"
UNKNOWN_STEP = "SMDP705"
NO_LOCATION = "SMDP706"
IN_USE = "SMDP707"
EXISTS = "SMDP708"
NONE_WHOLE = "SMDP709"
SHARED = "SMDP710"
_MOST = 5  # steps in a message


def refusal(code: str, where: str, message: str, help_: str, summary: str) -> Refused:
    """Args:
    where: the place: an S3 location, a file or a job.
    summary: what was not done.
    """
    return Refused(summary, [Diagnostic(code, f"{where}: {message}", text=where, help=help_)])


def torn(stored: StoredCheckpoints, one: StoredCheckpoint) -> Diagnostic:
    newest = stored.newest
    instead = f"; the newest usable one is of step {newest.step}" if newest is not None else ""
    help_ = f"a script does not load it; delete it with --delete {one.step}{instead}"
    return Diagnostic(TORN, f"{stored.object(one.name)}: {one.reason}", text=str(stored.object(one.name)), help=help_)


def unknown_step(stored: StoredCheckpoints, steps: list[int], summary: str) -> Refused:
    known = sorted({one.step for one in stored.checkpoints if one.step is not None}, reverse=True)
    more = " and others" if len(known) > _MOST else ""
    help_ = f"name one of {listed([str(one) for one in known[:_MOST]])}{more}" if known else "there is none"
    named = listed([str(one) for one in steps])
    return refusal(UNKNOWN_STEP, stored.where, f"there is no checkpoint of step {named}", help_, summary)
