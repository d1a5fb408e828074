from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.amounts import Seconds
from smdp_launch.cli.shared.groups import Group
from smdp_launch.cli.shared.local_runs import require_linux


def _folder(user: bool, *, creates: bool = False) -> Path:
    """The state folder. Without ``creates``, the folder above it is not created either."""
    from smdp_launch.jobs.records.local_clouds import known_cloud_folder, local_cloud_folder, user_cloud_folder

    require_linux("the local cloud")
    if user:
        return user_cloud_folder()
    return local_cloud_folder() if creates else known_cloud_folder()


@contextmanager
def _environment_problems(user: bool) -> Iterator[None]:
    """Raise an error of the local cloud as EnvironmentProblem. ``user``: as the option, which ignores the variable of
    the state folder."""
    from smdp_launch.errors import EnvironmentProblem
    from smdp_launch.localcloud.client.connect import LocalCloudError, UnusableFolder

    try:
        yield
    except UnusableFolder as error:
        other = "To use another folder, set XDG_STATE_HOME, or omit --user."
        raise EnvironmentProblem(f"{error.reason}. {other}" if user else str(error)) from error
    except LocalCloudError as error:
        raise EnvironmentProblem(str(error)) from error


_user = click.option("--user", is_flag=True, help="Use the local cloud that all your folders share.")


@click.group("local", cls=Group)
def command() -> None:
    """Start, stop and inspect the local cloud: a server on this machine that any AWS client can use.

    The commands use the local cloud of the folder in SMDP_LOCAL_STATE, which `up` exports. If the variable is not set,
    they use the local cloud of the current folder. `launch --local` and the jobs that it starts do the same.
    """


@command.command("up", short_help="Start the local cloud, and print its settings for other tools.")
@_user
@options.json_document
def up(user: bool, as_json: bool) -> None:
    """Start the local cloud, if it does not run yet. It runs until `smdp-launch local down`.

    The command prints shell commands on standard output. To make every AWS client of the shell use the local cloud:

    \b
    eval "$(smdp-launch local up)"
    """  # noqa: D301 - click reads \b as "keep the line breaks of this paragraph"
    from smdp_launch.cli.render.local import print_json, print_up
    from smdp_launch.cli.shared.aws_settings import CommandLine, ignored_endpoints
    from smdp_launch.doctor.packages import require_local_cloud
    from smdp_launch.localcloud.client import shared
    from smdp_launch.localcloud.client.variables import variables

    require_local_cloud()
    folder = _folder(user, creates=True)
    with CommandLine(os.environ) as aws:
        with _environment_problems(user):
            endpoint = shared.up(folder)
        warnings = [one for one in (aws.warning(), ignored_endpoints(os.environ)) if one is not None]
    if as_json:
        print_json(shared.status(folder), with_keys=True, warnings=warnings)
    else:
        print_up(endpoint, variables(endpoint, os.environ), user, warnings)


@command.command("down", short_help="Stop the local cloud and its jobs.")
@_user
@click.option(
    "--grace",
    type=Seconds(0, 120),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="Seconds that scripts have between SIGTERM and SIGKILL.",
)
@options.json_document
def down(user: bool, grace: float, as_json: bool) -> None:
    """Stop the local cloud and its jobs. Buckets, logs and models remain on disk."""
    from smdp_launch.cli.render.local import print_down, print_json
    from smdp_launch.jobs.records.local_clouds import named_folder
    from smdp_launch.localcloud.client import shared

    folder = _folder(user)
    with _environment_problems(user):
        before = shared.status(folder)
        stopped = shared.down(folder, grace=grace)
    if as_json:
        print_json(shared.status(folder), stopped)
    else:
        print_down(before, stopped, user, named_folder())


@command.command("status", short_help="Show the local cloud's status and jobs.")
@_user
@options.json_document
def status(user: bool, as_json: bool) -> None:
    """Show whether the local cloud runs, its address, and its running jobs."""
    from smdp_launch.cli.render.local import print_json, print_status
    from smdp_launch.localcloud.client import shared

    with _environment_problems(user):
        cloud = shared.status(_folder(user))
    if as_json:
        print_json(cloud)
    else:
        print_status(cloud, user)
