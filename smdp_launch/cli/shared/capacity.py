"""`launch --wait-for-capacity`: the jobs that may run, and what the wait shows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smdp_launch.cli.shared.checking import check
from smdp_launch.cli.shared.completers import job_files

if TYPE_CHECKING:
    from smdp_launch.checking.job import CheckedJob
    from smdp_launch.jobs.capacity import Waits
    from smdp_launch.jobs.service.clients import Clients
    from smdp_launch.planning.plan import Plan

_TIME = re.compile(r"(?P<amount>\d{1,6})(?P<unit>s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 28 * 86400


def _seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    given = _TIME.fullmatch(value)
    seconds = int(given["amount"]) * _SECONDS[given["unit"]] if given is not None else 0
    if not 1 <= seconds <= _LONGEST:
        raise click.BadParameter(f"{value!r} is no time: write one such as 30m or 6h, 28d at most")
    return float(seconds)


def capacity_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--wait-for-capacity`` and ``--also``."""
    also = click.option(
        "--also",
        "also_files",
        metavar="JOBFILE",
        multiple=True,
        type=click.Path(path_type=Path),
        shell_complete=job_files,
        help="With --wait-for-capacity: also try this job file, such as the job in another region; may be repeated.",
    )
    wait = click.option(
        "--wait-for-capacity",
        metavar="TIME",
        callback=_seconds,
        help="If SageMaker has no hosts for the job, create the job again, for this long at most, such as 6h.",
    )
    return wait(also(command))


def checked_others(job_files: Sequence[Path], settings: Sequence[str]) -> list[CheckedJob]:
    """The jobs of the other files.

    Raises:
        JobFileRefused: one has errors.
        Refused: one has placeholders.
    """
    jobs = [check(one, settings=settings) for one in job_files]
    for one in jobs:
        one.require()
        one.require_launchable()
    return jobs


def await_capacity(
    first: Clients, jobs: Sequence[CheckedJob], total: float, ignore: Collection[str], *, as_json: bool
) -> tuple[Clients, Plan]:
    """Create one of the jobs after the other until one has hosts. The first of ``jobs`` is that of the clients.

    Raises:
        Refused: the account is not ready for one of the others.
        WaitTimedOut: no job got hosts in time.
    """
    from smdp_launch.cli.shared.follow_session import interrupts_deferred
    from smdp_launch.jobs.capacity import CapacityWait, Pauses, regions_of

    regions = regions_of(first, jobs, ignore)
    with interrupts_deferred(first):
        wait = CapacityWait(regions, total, _print_json if as_json else _print, Pauses().within(total))
        return wait.run()


def _print(waits: Waits) -> None:
    from smdp_launch.cli.render.next_step import print_note
    from smdp_launch.units import duration

    if waits.is_stopping:
        print_note(f"trying to stop {waits.job}; press Ctrl-C again to leave it")
    elif waits.again_in is not None:
        print_note(f"the next job follows in {duration(round(waits.again_in))}")
    elif waits.job is not None:
        print_note(f"{waits.region}: {waits.job} waits for capacity: {waits.reason}")
    else:
        print_note(f"{waits.region}: no hosts: {waits.reason}")


def _print_json(waits: Waits) -> None:
    from smdp_launch.cli.render.job.events import print_waiting

    if waits.is_stopping:
        _print(waits)  # for the person who pressed Ctrl-C
        return
    what = f"job {waits.job} waits for capacity" if waits.job is not None else "no hosts"
    print_waiting(f"{what} in {waits.region}", waits.reason, time.time(), waits.again_in or 0.0)
