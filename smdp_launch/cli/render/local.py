"""The local cloud's standing for a person, for a shell and for a program."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from smdp_launch.cli.render.next import say_next
from smdp_launch.cli.render.terminal.console import Console
from smdp_launch.cli.render.terminal.rows import print_rows
from smdp_launch.localcloud.client.connect import Endpoint
from smdp_launch.localcloud.client.shared import Standing
from smdp_launch.localcloud.client.variables import NAMES, variables
from smdp_launch.units import count, short, titled

#: Version of ``local ... --json``; raised when a member changes its meaning or goes.
_VERSION = 1


#: The SageMaker SDK's own address, which no setting replaces.
_NOT_REDIRECTED = (
    "not redirected: get_execution_role() and Session.account_id() of the SageMaker SDK, which name "
    "https://sts.REGION.amazonaws.com themselves; the SDK's defaults file has a role and a bucket (docs/clients.md)"
)


def show_up(endpoint: Endpoint, wanted: Mapping[str, str | None], user: bool, warnings: Sequence[str]) -> None:
    """Commands for a POSIX shell on standard output, the announcement on standard error."""
    for name, value in wanted.items():
        click.echo(f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}")
    where = f"{endpoint.url}, process {endpoint.pid}, state in {short(endpoint.state_dir)}"
    click.echo(f"the local cloud is up: {where}", err=True)
    click.echo("It stays up until: " + _command("down", user), err=True)
    click.echo(_NOT_REDIRECTED, err=True)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    say_next(f'eval "$({_command("up", user)})" points the AWS clients of this shell to it')


def show_down(before: Standing, stopped: Sequence[str], user: bool, named: Path | None) -> None:
    """``named``: the state folder that the environment names."""
    if before.endpoint is None and not stopped:
        click.echo("the local cloud was not up")
    else:
        click.echo(f"the local cloud is down{_stopped(stopped)}")
    if named is not None and named.resolve() == before.state_dir:
        say_next(f"unset {' '.join(NAMES)} frees this shell, which still points there")
    else:
        say_next(_command("up", user))


def _stopped(names: Sequence[str]) -> str:
    return f"; stopped with it: {', '.join(names)}" if names else ""


def show_status(standing: Standing, user: bool) -> None:
    console = Console(highlight=False)
    console.print(Text("local cloud", "bold"), _in_words(standing), sep="  ")
    rows = [("state", short(standing.state_dir))]
    if standing.endpoint is not None:
        rows[:0] = [("address", standing.endpoint.url), ("process", str(standing.endpoint.pid))]
    rows += titled("running", standing.running) or [("running", "no job")]
    rows.append(("ended", count(standing.ended, "job")))
    print_rows(console, rows)
    say_next(_command("down" if standing.announced else "up", user))


def _in_words(standing: Standing) -> str:
    if standing.endpoint is None:
        return "down: it was killed, and the next command starts it again" if standing.announced else "down"
    return "up until it is told to go" if standing.announced else "up for as long as a command or a job needs it"


def show_document(
    standing: Standing, stopped: Sequence[str] = (), *, keys: bool = False, warnings: Sequence[str] = ()
) -> None:
    document = as_document(standing, stopped, keys=keys, warnings=warnings)
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def as_document(
    standing: Standing, stopped: Sequence[str] = (), *, keys: bool = False, warnings: Sequence[str] = ()
) -> dict[str, Any]:
    """Without ``keys`` the environment stays empty, so that a standing can be shown and kept anywhere."""
    endpoint = standing.endpoint
    return {
        "local": _VERSION,
        "up": endpoint is not None,
        "announced": standing.announced,
        "state": str(standing.state_dir),
        "pid": endpoint.pid if endpoint is not None else None,
        "url": endpoint.url if endpoint is not None else None,
        "environment": variables(endpoint, {}) if keys and endpoint is not None else {},
        "running": list(standing.running),
        "ended": standing.ended,
        "stopped": list(stopped),
        "warnings": list(warnings),
    }


def _command(verb: str, user: bool) -> str:
    return f"smdp-launch local {verb}{' --user' if user else ''}"
