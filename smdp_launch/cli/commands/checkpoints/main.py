from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode

_STEP = re.compile(r"\d{1,18}")
_LATEST = "latest"


def _one_step(_: click.Context, __: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == _LATEST:
        return value
    return _number(value, "or latest")


def _steps(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(_number(one, "or several, such as 100,200") for value in values for one in value.split(","))


def _number(text: str, alternative: str) -> int:
    if not _STEP.fullmatch(text.strip()):
        raise click.BadParameter(f"{text!r} is no step: write its number, {alternative}")
    return int(text)


@click.command("checkpoints")
@options.job_name
@click.option("--verify", is_flag=True, help="Read all files and compare their SHA-256 with the saved values.")
@click.option(
    "--fetch", metavar="STEP", callback=_one_step, help="Download the checkpoint of this step, or the latest one."
)
@click.option(
    "--to",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="With --fetch: the folder for the files. Default: smdp-results/NAME/checkpoints.",
)
@click.option("--force", is_flag=True, help="With --fetch: replace existing files.")
@click.option(
    "--delete",
    "delete_steps",
    metavar="STEP,...",
    multiple=True,
    callback=_steps,
    help="Delete the checkpoints of these steps.",
)
@click.option(
    "--keep-last", metavar="N", type=click.IntRange(min=1), help="Delete all checkpoints older than the N newest."
)
@click.option(
    "--keep-every",
    metavar="N",
    type=click.IntRange(min=1),
    help="With --keep-last: also keep the steps that are multiples of N.",
)
@click.option("--yes", "-y", is_flag=True, help="Delete without confirmation.")
@options.region
@options.json_document
def command(
    name: str | None,
    verify: bool,
    fetch: int | str | None,
    folder: Path | None,
    force: bool,
    delete_steps: tuple[int, ...],
    keep_last: int | None,
    keep_every: int | None,
    yes: bool,
    region: str | None,
    as_json: bool,
) -> ExitCode:
    """List the checkpoints of job NAME (default: the latest) in S3: step, state, time, size and ranks.

    NAME may also be an S3 location (s3://BUCKET/PREFIX), for a job that was not launched from this folder.

    A sharded checkpoint has a marker that lists its files and their sizes. The checkpoint is complete (`whole`) if all
    these files exist with these sizes. Otherwise it is incomplete (`torn`). --verify also compares the content of the
    files, and exits with code 10 if a checkpoint is incomplete.

    Before a deletion, the command asks for confirmation. It does not delete a checkpoint that a running job needs.
    """
    from smdp_launch.cli.commands.checkpoints.session import Request, run

    if fetch is None and (folder is not None or force):
        raise click.UsageError("--to and --force require --fetch")
    if keep_every is not None and keep_last is None:
        raise click.UsageError("--keep-every requires --keep-last")
    if sum((fetch is not None, bool(delete_steps), keep_last is not None)) > 1:
        raise click.UsageError("--fetch, --delete and --keep-last exclude each other: pass one of them")
    step = None if fetch == _LATEST else fetch
    request = Request(
        verify=verify,
        fetches=fetch is not None,
        step=step if isinstance(step, int) else None,
        folder=folder,
        force=force,
        delete_steps=delete_steps,
        keep_last=keep_last,
        keep_every=keep_every,
        yes=yes,
        as_json=as_json,
    )
    return run(name, region, request)
