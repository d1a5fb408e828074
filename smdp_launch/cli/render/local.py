"""The status of the local cloud, for a person, for a shell and for a program."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.render.next_step import print_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.localcloud.client.connect import Endpoint
from smdp_launch.localcloud.client.shared import CloudStatus
from smdp_launch.localcloud.client.variables import NAMES, variables
from smdp_launch.units import count, short, titled

#: Version of ``local ... --json``; raised when a field changes its meaning or is removed.
_VERSION = 1

#: Functions of the SageMaker SDK with a fixed endpoint.
_NOT_REDIRECTED = (
    "not redirected: get_execution_role() and Session.account_id() of the SageMaker SDK, which always call "
    "https://sts.REGION.amazonaws.com; the SDK's defaults file has a role and a bucket "
    "(docs/reference/clients.md)"
)


def print_up(endpoint: Endpoint, settings: Mapping[str, str | None], user: bool, warnings: Sequence[str]) -> None:
    """Print commands for a POSIX shell on standard output, and the status on standard error."""
    for name, value in settings.items():
        click.echo(f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}")
    where = f"{endpoint.url}, process {endpoint.pid}, state in {short(endpoint.state_dir)}"
    click.echo(f"the local cloud is running: {where}", err=True)
    click.echo("to stop it: " + _command("down", user), err=True)
    click.echo(_NOT_REDIRECTED, err=True)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    print_next(f'eval "$({_command("up", user)})" makes the AWS clients of this shell use it')


def print_down(before: CloudStatus, stopped: Sequence[str], user: bool, named: Path | None) -> None:
    """``named``: the state folder in the environment variable."""
    if before.endpoint is None and not stopped:
        click.echo("the local cloud was not running")
    else:
        click.echo(f"the local cloud is stopped{_stopped(stopped)}")
    if named is not None and named.resolve() == before.state_dir:
        print_next(f"unset {' '.join(NAMES)} (this shell still uses the stopped local cloud)")
    else:
        print_next(_command("up", user))


def _stopped(names: Sequence[str]) -> str:
    return f", with the jobs {', '.join(names)}" if names else ""


def print_status(standing: CloudStatus, user: bool) -> None:
    console = Console(highlight=False)
    console.print(Text("local cloud", "bold"), _state(standing), sep="  ")
    rows = [("state", short(standing.state_dir))]
    if standing.endpoint is not None:
        rows[:0] = [("address", standing.endpoint.url), ("process", str(standing.endpoint.pid))]
    rows += titled("running", standing.running) or [("running", "no job")]
    rows.append(("ended", count(standing.ended, "job")))
    print_rows(console, rows)
    print_next(_command("down" if standing.announced else "up", user))


def _state(standing: CloudStatus) -> str:
    if standing.endpoint is None:
        return "killed; the next command restarts it" if standing.announced else "stopped"
    return "running until `local down`" if standing.announced else "running while a command or a job uses it"


def print_json(
    standing: CloudStatus, stopped: Sequence[str] = (), *, with_keys: bool = False, warnings: Sequence[str] = ()
) -> None:
    document = local_json(standing, stopped, with_keys=with_keys, warnings=warnings)
    print_document(document)


def local_json(
    standing: CloudStatus, stopped: Sequence[str] = (), *, with_keys: bool = False, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """Without ``with_keys`` the environment is empty, so that the result holds no secret."""
    endpoint = standing.endpoint
    return {
        "local": _VERSION,
        "up": endpoint is not None,
        "announced": standing.announced,
        "state": str(standing.state_dir),
        "pid": endpoint.pid if endpoint is not None else None,
        "url": endpoint.url if endpoint is not None else None,
        "environment": variables(endpoint, {}) if with_keys and endpoint is not None else {},
        "running": list(standing.running),
        "ended": standing.ended,
        "stopped": list(stopped),
        "warnings": list(warnings),
    }


def _command(verb: str, user: bool) -> str:
    return f"smdp-launch local {verb}{' --user' if user else ''}"
