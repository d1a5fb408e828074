"""The checkpoints of a job in S3, for a person and for a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timezone
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from smdp_launch.cli.render.job.status import place as place_text
from smdp_launch.cli.render.next_step import command_for_job, next_for_job, print_next, print_note
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.table import Column, print_table
from smdp_launch.jobs.checkpoints.fetching import Fetched
from smdp_launch.jobs.checkpoints.stored import Kind, State, StoredCheckpoint, StoredCheckpoints
from smdp_launch.jobs.job import UNKNOWN_REGION, Job
from smdp_launch.jobs.status.checkpoint_users import has_own_location
from smdp_launch.jobs.status.description import Description
from smdp_launch.plain_text import without_controls
from smdp_launch.systems import command_line
from smdp_launch.units import count, listed, short, size

#: Version of ``checkpoints --json``; raised when a field changes its meaning or is removed.
_VERSION = 1
_STYLES = {State.VERIFIED: "bold green", State.WHOLE: "green", State.UNKNOWN: "yellow", State.TORN: "bold red"}
_MOST = 8  # steps in a question


@dataclass(frozen=True)
class Place:
    """Where the checkpoints are.

    Args:
        job: None for an S3 location that was given in place of a job.
        last: the last of the jobs that resume `job` one after another, which uses the same location.
    """

    s3: str
    where: str
    job: Job | None = None
    description: Description | None = None
    last: Description | None = None

    @property
    def user(self) -> str | None:
        """The job that has not ended and may resume from them."""
        last = self.last or self.description
        return last.job if last is not None and last.outcome is None else None

    @property
    def may_be_in_use(self) -> bool:
        """Whether there is a `user`; True also for an S3 location, whose job is not known."""
        return self.description is None or self.user is not None

    def command(self, *options: str) -> str:
        """``smdp-launch checkpoints`` with these options, as a user types it."""
        if self.job is None:
            region = ["--region", self.where] if self.where != UNKNOWN_REGION else []
            return command_line(["smdp-launch", "checkpoints", self.s3, *options, *region])
        return " ".join([command_for_job("checkpoints", self.job.name, self.job.region), *options])


def print_checkpoints(
    place: Place, stored: StoredCheckpoints, *, verified: bool = False, is_choice: bool = False
) -> None:
    """Args:
    is_choice: the table is followed by a question.
    """
    console = Console(highlight=False)
    _print_head(console, place)
    print_table(console, _columns(stored.checkpoints))
    if is_choice:
        return
    console.print(Text(_summary(stored)), soft_wrap=True)
    unknown = [one for one in stored.checkpoints if one.state is State.UNKNOWN]
    if unknown:
        kinds = "cannot be verified" if verified else "can only be listed"
        print_note(f"{count(len(unknown), 'entry')} {kinds}: {unknown[0].reason}".replace("entrys", "entries"))
    can_verify = not verified and any(one.state is State.WHOLE for one in stored.checkpoints)
    print_next(place.command("--verify") if can_verify else place.command("--fetch", "latest"))


def print_none(place: Place, stored: StoredCheckpoints) -> None:
    console = Console(highlight=False)
    _print_head(console, place)
    console.print("no checkpoint is there yet" if place.user is not None else "no checkpoint is there")
    if place.job is not None and place.description is not None:
        print_next(next_for_job(place.job, place.description))


def print_fetched(place: Place, fetched: Fetched, folder: Path) -> None:
    console = Console(highlight=False)
    amount = f"{count(fetched.files, 'file')}, {size(fetched.size)}" if fetched.files else "all files were there"
    text = f"step {fetched.checkpoint.step} is in {short(fetched.path)} ({amount}"
    text += ", each with its saved SHA-256)" if fetched.is_verified else ")"
    console.print(Text(without_controls(text)), soft_wrap=True)
    if not fetched.is_verified:
        print_note(f"it cannot be verified: {fetched.checkpoint.reason}")
    if fetched.checkpoint.kind is not Kind.FILES:
        name = "ShardedCheckpoints" if fetched.checkpoint.kind is Kind.SHARDED else "Checkpoints"
        print_next(f'in Python, smdp_engine.checkpoint.{name}("{short(folder)}").load()')
    else:
        print_next(command_line(["ls", "-lR", short(fetched.path)]))


def print_deleted(place: Place, rest: StoredCheckpoints, deleted: Sequence[StoredCheckpoint]) -> None:
    if not deleted:
        click.echo("nothing to delete: every checkpoint is kept")
    else:
        freed = size(sum(one.size for one in deleted))
        click.echo(f"deleted {_steps(deleted)} ({freed})")
    click.echo(_summary(rest) if rest.checkpoints else "no checkpoint remains")
    print_next(place.command())


def question(place: Place, stored: StoredCheckpoints, selected: Sequence[StoredCheckpoint]) -> str:
    newest = stored.newest
    end = f" in {place.s3} ({place_text(place.where)})?"
    if place.job is not None and not has_own_location(place.job.name, place.s3):
        end = f"{end[:-1]}, also those that other jobs saved?"
    if newest is None or newest in selected:
        end = f"{end[:-1]}, which leaves none to resume from?" if _leaves_none(stored, selected) else end
    return f"Delete {_steps(selected)}{end}"


def _leaves_none(stored: StoredCheckpoints, selected: Sequence[StoredCheckpoint]) -> bool:
    return stored.replaced(one for one in stored.checkpoints if one not in selected).newest is None


def _steps(checkpoints: Sequence[StoredCheckpoint]) -> str:
    steps = [str(one) for one in sorted({one.step for one in checkpoints if one.step is not None})]
    if len(steps) > _MOST:
        return f"{count(len(checkpoints), 'checkpoint')}, of the steps {steps[0]} to {steps[-1]}"
    return f"{count(len(checkpoints), 'checkpoint')}, of step {listed(steps)}"


def _print_head(console: Console, place: Place) -> None:
    where = Text(without_controls(f"{place.s3}, {place_text(place.where)}"))
    if place.job is None:
        console.print(where, soft_wrap=True)
    else:
        console.print(Text(place.job.name, "bold"), where, sep="  ", soft_wrap=True)


def _columns(checkpoints: Sequence[StoredCheckpoint]) -> list[Column]:
    reasons = [one.reason if one.state is State.TORN else "" for one in checkpoints]
    columns = [
        Column("STEP", [_text(one.step) for one in checkpoints]),
        Column("STATE", [one.state.value for one in checkpoints], [_STYLES[one.state] for one in checkpoints]),
        Column("NAME", [one.name for one in checkpoints], drop=1),
        Column("NEWEST FILE (UTC)", [_time(one) for one in checkpoints]),
        Column("SIZE", [size(one.size) for one in checkpoints]),
        Column("FILES", [str(len(one.files)) for one in checkpoints], drop=3),
        Column("RANKS", [_text(one.ranks) for one in checkpoints], drop=2),
        Column("DETAILS", reasons),
    ]
    return [one for one in columns if one.title != "DETAILS" or any(reasons)]


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _time(one: StoredCheckpoint) -> str:
    return f"{one.newest.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def _summary(stored: StoredCheckpoints) -> str:
    total = size(sum(one.size for one in stored.checkpoints))
    text = f"{count(len(stored.checkpoints), 'checkpoint')}, {total}"
    newest = stored.newest
    if newest is None:
        return f"{text}; none can be loaded" if any(one.step is not None for one in stored.checkpoints) else text
    return f"{text}; the newest {'whole' if newest.is_whole else 'usable'} one is of step {newest.step}"


def document(
    place: Place,
    stored: StoredCheckpoints,
    *,
    verified: bool,
    fetched: Fetched | None = None,
    deleted: Sequence[StoredCheckpoint] = (),
) -> dict[str, Any]:
    newest = stored.newest
    return {
        "checkpoints": _VERSION,
        "job": place.job.name if place.job is not None else None,
        "where": place.where,
        "s3": place.s3,
        "verified": verified,
        "newest_step": newest.step if newest is not None else None,
        "bytes": sum(one.size for one in stored.checkpoints),
        "stored": [_json(one) for one in stored.checkpoints],
        "fetched": _fetched_json(fetched) if fetched is not None else None,
        "deleted": [_json(one) for one in deleted],
    }


def _json(one: StoredCheckpoint) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind.value,
        "step": one.step,
        "state": one.state.value,
        "reason": one.reason,
        "ranks": one.ranks,
        "files": len(one.files),
        "bytes": one.size,
        "newest_file": one.newest.isoformat(),
        "save_seconds": one.seconds,
    }


def _fetched_json(fetched: Fetched) -> dict[str, Any]:
    return {
        "path": str(fetched.path),
        "step": fetched.checkpoint.step,
        "files": fetched.files,
        "bytes": fetched.size,
        "verified": fetched.is_verified,
    }
