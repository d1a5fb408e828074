from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from smdp_launch.cli.shared import options
from smdp_launch.cli.shared.groups import Group

if TYPE_CHECKING:
    from smdp_launch.image.tools import Login


def _arguments(_: click.Context, __: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Parse the ``NAME=VALUE`` of each ``--arg``."""
    arguments: dict[str, str] = {}
    for value in values:
        name, equals, argument = value.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        arguments[name] = argument
    return arguments


_tool = click.option(
    "--tool",
    type=click.Choice(["docker", "podman", "buildah"]),
    help="The build tool. Default: the first one installed.",
)


@click.group("image", cls=Group)
def command() -> None:
    """Build the training image, push it to Amazon ECR, and inspect images."""


@command.command("build", short_help="Build the training image on this machine.")
@click.option("--framework", type=click.Choice(["pytorch", "tensorflow"]), default="pytorch", help="Default: pytorch.")
@click.option("--version", metavar="VERSION", help="Framework version. Default: PyTorch 2.0.1, TensorFlow 2.14.1.")
@click.option("--cuda/--cpu", "cuda", default=True, help="Include CUDA, or build for CPUs. Default: --cuda.")
@click.option(
    "--transformers", metavar="VERSION", help="Include this version of Hugging Face transformers (PyTorch only)."
)
@click.option(
    "--dlc",
    is_flag=True,
    help="Start from AWS's Deep Learning Container; needs a login to its registry (PyTorch only).",
)
@click.option("--tag", metavar="NAME", help="Additional name: a tag, or NAME:TAG.")
@click.option(
    "--arg",
    "args",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_arguments,
    help="Pass a build argument; may be repeated.",
)
@click.option(
    "--wheels",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Install packages from the wheels in this folder first; with --arg INDEX=off, only from this folder.",
)
@click.option("--rebuild", is_flag=True, help="Build even if the same image exists locally.")
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
    """Build the training image with docker, podman or buildah. Its tag is a hash of the build's inputs.

    The command prints the image's name on standard output. docs/how-to/images.md lists the build arguments.
    """
    from smdp_launch.cli.render.image import BuildView
    from smdp_launch.image.build import build as make
    from smdp_launch.image.recipe import recipe
    from smdp_launch.image.tools import find_tool

    image = recipe(framework, version, cuda=cuda, transformers=transformers, dlc=dlc, args=args)
    program = find_tool(tool)
    with BuildView(program.name) as view:
        built = make(image, program, view.line, tag=tag, wheels=wheels, rebuild=rebuild)
    view.built(built)


@command.command("push", short_help="Push a local image to Amazon ECR.")
@click.argument("name", metavar="NAME:TAG")
@click.option("--region", metavar="REGION", help="The region. Default: the region of your AWS configuration.")
@click.option("--create", is_flag=True, help="Create the repository if it does not exist.")
@click.option("--again", is_flag=True, help="Push even if the repository has the tag.")
@_tool
def push(name: str, region: str | None, create: bool, again: bool, tool: str | None) -> None:
    """Push the local image NAME:TAG to the ECR repository NAME of your account, and print its URI.

    The command logs in to ECR for this push only and stores no password.
    """
    from smdp_launch.cli.render.image import BuildView
    from smdp_launch.image.push import local_image
    from smdp_launch.image.push import push as send
    from smdp_launch.image.tools import find_tool
    from smdp_launch.jobs.service.clients import connect_ecr

    program = find_tool(tool)
    image = local_image(name, program)  # report a wrong name before credentials are needed
    with BuildView(program.name) as view:
        sent = send(image, connect_ecr(region), program, view.line, create=create, again=again)
    view.pushed(sent)


@command.command("inspect", short_help="Show the contents of an image without pulling it.")
@click.argument("uri", metavar="URI")
@click.option(
    "--user",
    metavar="NAME",
    help="Log in as this user. The command prompts for the password, or reads it from standard input.",
)
@options.json_document
def inspect(uri: str, user: str | None, as_json: bool) -> None:
    """Show the CUDA, framework, engine and labels of an image, read from its registry.

    The command uses your AWS credentials for ECR. For other registries, it uses no login unless you set --user.
    """
    from smdp_launch.cli.render.image import print_inspection, print_inspection_json
    from smdp_launch.cli.render.terminal.bars import busy
    from smdp_launch.image.inspection import inspect as read

    registry_login = _login(uri, user)
    with busy(f"reading {uri}"):
        inspection = read(uri, registry_login)
    print_inspection_json(inspection) if as_json else print_inspection(inspection)


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
