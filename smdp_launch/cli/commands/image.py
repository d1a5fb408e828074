from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smdp_launch.cli.shared.groups import Group

if TYPE_CHECKING:
    from smdp_launch.image.tools import Login


def _arguments(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` of each ``--arg``."""
    given: dict[str, str] = {}
    for value in values:
        name, equals, argument = value.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        given[name] = argument
    return given


_tool = click.option("--tool", type=click.Choice(["docker", "podman", "buildah"]), help="Use this one, not the first.")


@click.group("image", cls=Group, short_help="Build, push and inspect training images.")
def command() -> None:
    """Build the training image, push it to Amazon ECR, and see what any image holds."""


@command.command("build", short_help="Build the training image on this machine.")
@click.option("--framework", type=click.Choice(["pytorch", "tensorflow"]), default="pytorch", show_default=True)
@click.option("--version", help="Of the framework.  [default: PyTorch 2.0.1, TensorFlow 2.14.1]")
@click.option("--cuda/--cpu", "cuda", default=True, help="With CUDA 11.8, or for runs without GPUs. [default: --cuda]")
@click.option("--transformers", metavar="VERSION", help="With Hugging Face transformers (PyTorch).")
@click.option("--dlc", is_flag=True, help="On top of AWS's own container, which needs a login there (PyTorch).")
@click.option("--tag", metavar="NAME", help="Name it so too: a tag, or NAME:TAG.")
@click.option("--arg", "args", metavar="NAME=VALUE", multiple=True, callback=_arguments, help="A build argument.")
@click.option(
    "--wheels",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Wheels to install from before the index (with --arg INDEX=off in place of it).",
)
@click.option("--rebuild", is_flag=True, help="Even where the very same image is here.")
@_tool
def build(
    framework: str,
    version: str | None,
    cuda: bool,
    transformers: str | None,
    dlc: bool,
    tag: str | None,
    args: dict[str, str],
    wheels: Path | None,
    rebuild: bool,
    tool: str | None,
) -> None:
    """Build the image with docker, podman or buildah, named by the hash of what it is made from.

    Standard output is the image's name alone; docs/images.md tells the build arguments.
    """
    from smdp_launch.cli.render.image import BuildView
    from smdp_launch.image.build import build as make
    from smdp_launch.image.recipe import recipe
    from smdp_launch.image.tools import find_tool

    wanted = recipe(framework, version, cuda=cuda, transformers=transformers, dlc=dlc, args=args)
    found = find_tool(tool)
    with BuildView(found.name) as view:
        built = make(wanted, found, view.line, tag=tag, wheels=wheels, rebuild=rebuild)
    view.built(built)


@command.command("push", short_help="Push an image of this machine to Amazon ECR.")
@click.argument("name", metavar="NAME:TAG")
@click.option("--region", metavar="REGION", help="Where; by default that of the AWS configuration.")
@click.option("--create", is_flag=True, help="Create the repository if there is none.")
@click.option("--again", is_flag=True, help="Even where that tag is there.")
@_tool
def push(name: str, region: str | None, create: bool, again: bool, tool: str | None) -> None:
    """Push NAME:TAG to the ECR repository NAME of your account, and print the URI for the job file.

    The login is asked of ECR for this push and kept nowhere.
    """
    from smdp_launch.cli.render.image import BuildView
    from smdp_launch.image.push import local_image
    from smdp_launch.image.push import push as send
    from smdp_launch.image.tools import find_tool
    from smdp_launch.jobs.service.clients import connect_ecr

    found = find_tool(tool)
    image = local_image(name, found)  # before anybody is asked for credentials
    with BuildView(found.name) as view:
        sent = send(image, connect_ecr(region), found, view.line, create=create, again=again)
    view.pushed(sent)


@command.command("inspect", short_help="What an image holds, without pulling it.")
@click.argument("uri", metavar="URI")
@click.option("--user", metavar="NAME", help="Log in so; the password is asked for, or read from standard input.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (docs/json.md).")
def inspect(uri: str, user: str | None, as_json: bool) -> None:
    """Read an image's manifest and config from its registry: CUDA, framework, engine, labels.

    ECR registries are asked with your AWS credentials, others without a login unless --user is given.
    """
    from smdp_launch.cli.render.image import show_inspection, show_json
    from smdp_launch.image.inspection import inspect as read

    found = read(uri, _login(uri, user))
    show_json(found) if as_json else show_inspection(found)


def _login(uri: str, user: str | None) -> Login | None:
    from smdp_launch.catalog.images import parse_image
    from smdp_launch.image.ecr import login
    from smdp_launch.image.tools import Login
    from smdp_launch.jobs.service.clients import connect_ecr

    image = parse_image(uri)
    if image is None:
        return None
    if user is not None:
        return Login(image.registry, user, _password())
    if image.account is not None:
        ecr: Any = connect_ecr(image.region)
        return login(ecr)[0]
    return None


def _password() -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\n") if sys.stdin is not None else ""
