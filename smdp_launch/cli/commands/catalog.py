from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from smdp_launch.cli.shared import completing
from smdp_launch.cli.shared.groups import Group

Callback = Callable[[click.Context, click.Parameter, str | None], str | None]


def _one_of(kind: str) -> Callback:
    """Takes the words of ``kind`` alone. They are looked up when the option is used: ``--help`` reads no table."""

    def check(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        from smdp_launch.catalog.regions import closest_region
        from smdp_launch.diagnostics import closest

        words = _words(kind)
        if value is None or value in words:
            return value
        match = closest_region(value) if kind == "region" else closest(value, words)
        hint = f"did you mean {match}?" if match else f"one of {', '.join(words)}"
        raise click.BadParameter(f"{value!r} is no {kind} that the catalogue knows: {hint}")

    return check


def _completing(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    return lambda _, __, incomplete: completing.starting(_words(kind), incomplete)


def _words(kind: str) -> Sequence[str]:
    from smdp_launch.catalog import frameworks, listing, regions

    known: dict[str, Callable[[], Sequence[str]]] = {
        "policy": lambda: listing.POLICIES,
        "engine": lambda: listing.ENGINES,
        "region": regions.regions,
        "framework": lambda: [*frameworks.frameworks(), listing.HUGGINGFACE],
    }
    return known[kind]()


def _narrowing(kind: str, metavar: str, help_: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{kind}", metavar=metavar, callback=_one_of(kind), help=help_, shell_complete=_completing(kind)
    )


_json = click.option("--json", "as_json", is_flag=True, help="One JSON document (docs/json.md).")
_policy = _narrowing("policy", "POLICY", "Only what strict or extended allows.")
_engine = _narrowing("engine", "ENGINE", "Only for native or smdistributed.")
_region = _narrowing("region", "REGION", "Such as us-east-1.")
_framework = _narrowing("framework", "NAME", "Only pytorch, tensorflow or huggingface.")


@click.group("catalog", cls=Group, short_help="What can be asked for: instances, frameworks, images.")
def command() -> None:
    """What a job file can ask for, from dated tables that come with smdp-launch. No network, no credentials."""


@command.command("instances", short_help="GPU instance types, and which engine takes them.")
@_policy
@_engine
@_region
@_json
def instances(policy: str | None, engine: str | None, region: str | None, as_json: bool) -> None:
    """GPU instance types, with what they hold and which engine and policy takes them.

    With --region those are left out that are known not to be offered there.
    """
    from smdp_launch.catalog.listing import list_instances
    from smdp_launch.cli.render.catalog import show_instances, show_json

    listed = list_instances(policy, engine, region)
    show_json(listed) if as_json else show_instances(listed)


@command.command("frameworks", short_help="Versions with their Python, CUDA and library.")
@_framework
@_policy
@_engine
@_json
def frameworks(framework: str | None, policy: str | None, engine: str | None, as_json: bool) -> None:
    """Framework versions, with the Python, CUDA and data-parallel library of AWS's images."""
    from smdp_launch.catalog.listing import list_frameworks
    from smdp_launch.cli.render.catalog import show_frameworks, show_json

    listed = list_frameworks(framework, policy, engine)
    show_json(listed) if as_json else show_frameworks(listed)


@command.command("images", short_help="URIs of AWS's training images.")
@_region
@_framework
@click.option("--version", metavar="VERSION", help="Only one framework version, such as 2.0.1 or 2.0.")
@_policy
@_json
def images(region: str | None, framework: str | None, version: str | None, policy: str | None, as_json: bool) -> None:
    """The exact URIs of AWS's training images. (Engine native runs in an image that you build and push.)

    Give a region for every framework version there, a version for every region that has it, or both.
    """
    from smdp_launch.catalog.listing import list_images
    from smdp_launch.cli.render.catalog import show_images, show_json

    if region is None and version is None:
        raise click.UsageError("give --region for the images of a region, or --version for those of a version")
    listed = list_images(region, framework, version, policy)
    if not listed.rows:
        raise click.UsageError(_why_none(region, framework, version))
    show_json(listed) if as_json else show_images(listed)


def _why_none(region: str | None, framework: str | None, version: str | None) -> str:
    from smdp_launch.catalog.listing import list_images
    from smdp_launch.catalog.regions import registry_account
    from smdp_launch.diagnostics import closest

    if region is not None and registry_account(region) is None:
        return f"no registry of AWS's containers is known in {region}"
    known = list(dict.fromkeys(row["version"] for row in list_images("us-east-1", framework).rows))
    if version is None or version in known:
        return "no image is all of that: leave an option out"
    match = closest(version, known)
    return f"there is no image of version {version}" + (f": did you mean {match}?" if match else "")
