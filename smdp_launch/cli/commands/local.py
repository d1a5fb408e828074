from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from smdp_launch.cli.shared.groups import Group


def _folder(user: bool) -> Path:
    from smdp_launch.jobs.records.local_clouds import local_cloud_folder, user_cloud_folder

    return user_cloud_folder() if user else local_cloud_folder()


@contextmanager
def _told() -> Iterator[None]:
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.localcloud.client.connect import LocalCloudError

    try:
        yield
    except LocalCloudError as error:
        raise EnvironmentProblem(str(error)) from error


_user = click.option("--user", is_flag=True, help="The one that your folders share, not this folder's.")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON document (docs/json.md).")


@click.group("local", cls=Group, short_help="Keep a local cloud up for other tools: up, down, status.")
def command() -> None:
    """Keep this machine's local cloud up between commands, so that any AWS client can use it.

    Which one is meant: that of SMDP_LOCAL_STATE, which `up` prints, if it is set; else that of the current folder. The
    same holds for `launch --local` and for the jobs it started.
    """


@command.command("up", short_help="Start it, and print what other tools need.")
@_user
@_json
def up(user: bool, as_json: bool) -> None:
    """Start the local cloud unless it runs, and leave it up until `smdp-launch local down`.

    Standard output is shell commands alone: eval "$(smdp-launch local up)" points every AWS client of the shell to it.
    """
    from smdp_launch.cli.render.local import show_document, show_up
    from smdp_launch.cli.shared.aws_settings import CommandLine, ignored_endpoints
    from smdp_launch.localcloud.client import shared
    from smdp_launch.localcloud.client.variables import variables

    folder = _folder(user)
    with CommandLine(os.environ) as aws:
        with _told():
            endpoint = shared.up(folder)
        warnings = [one for one in (aws.warning(), ignored_endpoints(os.environ)) if one is not None]
    if as_json:
        show_document(shared.look(folder), keys=True, warnings=warnings)
    else:
        show_up(endpoint, variables(endpoint, os.environ), user, warnings)


@command.command("down", short_help="End it, and its jobs with it.")
@_user
@click.option(
    "--grace",
    type=click.FloatRange(0, 120),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="What scripts get between SIGTERM and SIGKILL.",
)
@_json
def down(user: bool, grace: float, as_json: bool) -> None:
    """Stop the jobs of the local cloud, and end it. Buckets, logs and models stay on disk."""
    from smdp_launch.cli.render.local import show_document, show_down
    from smdp_launch.jobs.records.local_clouds import named_folder
    from smdp_launch.localcloud.client import shared

    folder = _folder(user)
    with _told():
        before = shared.look(folder)
        stopped = shared.down(folder, grace=grace)
    if as_json:
        show_document(shared.look(folder), stopped)
    else:
        show_down(before, stopped, user, named_folder())


@command.command("status", short_help="Whether it is up, where, and what runs in it.")
@_user
@_json
def status(user: bool, as_json: bool) -> None:
    """Tell whether the local cloud is up, where, and which jobs run in it. Starts nothing."""
    from smdp_launch.cli.render.local import show_document, show_status
    from smdp_launch.localcloud.client import shared

    with _told():
        standing = shared.look(_folder(user))
    if as_json:
        show_document(standing)
    else:
        show_status(standing, user)
