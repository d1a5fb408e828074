"""Checkpoints of a sweep, whose trials have one location in S3."""

from __future__ import annotations

from collections.abc import Iterator

from smdp_launch.diagnostics import Severity
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.rules.sweep.section import section

#: Variables of the container with the name of the trial's job, or with a text that contains it.
_NAMES_THE_JOB = frozenset({"TRAINING_JOB_NAME", "TRAINING_JOB_ARN", "SM_TRAINING_ENV"})


@rule("SMDP531", "checkpoint", "checkpoint.shared", severity=Severity.WARNING)
def trials_have_own_checkpoints(facts: Facts) -> Iterator[Problem]:
    """The definition of the trials has one CheckpointConfig. A script that reads the name of its job is assumed to use
    a folder of its own."""
    sweep, checkpoint = section(facts), facts.spec.checkpoint
    if sweep is None or checkpoint is None or checkpoint.shared or not facts.scripts:
        return
    if any(one.problem is not None for one in facts.scripts.values()):
        return
    if any(name in _NAMES_THE_JOB for one in facts.scripts.values() for name, *_ in one.environment):
        return
    message = (
        "all trials share one checkpoint location, and the script does not read the name of its trial: a trial can "
        "restore the checkpoints of another one"
    )
    help_ = (
        f'save to a folder of the trial, such as os.path.join("{checkpoint.path}", os.environ["TRAINING_JOB_NAME"]); '
        "if the script saves no checkpoints, remove `checkpoint`"
    )
    yield Problem(("checkpoint",), message, help_, on_key=True)


@rule("SMDP531", "checkpoint.shared")
def sweep_has_own_checkpoints(facts: Facts) -> Iterator[Problem]:
    if section(facts) is not None and facts.spec.checkpoint is not None and facts.spec.checkpoint.shared:
        message = "all trials, and other jobs, would restore, overwrite and delete each other's checkpoints"
        help_ = "remove `shared`: the location then contains the name of the sweep"
        yield Problem(("checkpoint", "shared"), message, help_, on_key=True)
