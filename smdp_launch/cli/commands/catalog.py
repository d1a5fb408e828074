from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from smdp_launch.cli.shared import completers, options
from smdp_launch.cli.shared.groups import Group

Callback = Callable[[click.Context, click.Parameter, str | None], str | None]


def _one_of(kind: str) -> Callback:
    """Accept only the values of ``kind``. They are read when the option is used, so that ``--help`` is fast."""

    def check(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
        from smdp_launch.catalog.regions import closest_region
        from smdp_launch.diagnostics import closest

        values = _values(kind)
        if value is None or value in values:
            return value
        match = closest_region(value) if kind == "region" else closest(value, values)
        hint = f"did you mean {match}?" if match else f"one of {', '.join(values)}"
        raise click.BadParameter(f"{value!r} is no {kind} in the catalog: {hint}")

    return check


def _completing(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    return lambda _, __, incomplete: completers.matching(_values(kind), incomplete)


def _values(kind: str) -> Sequence[str]:
    from smdp_launch.catalog import engines, frameworks, listing, regions

    known: dict[str, Callable[[], Sequence[str]]] = {
        "policy": lambda: listing.POLICIES,
        "engine": lambda: engines.ENGINES,
        "region": regions.regions,
        "framework": lambda: [*frameworks.frameworks(), listing.HUGGINGFACE],
    }
    return known[kind]()


def _filter(kind: str, metavar: str, help_: str) -> Callable[[Any], Any]:
    return click.option(
        f"--{kind}", metavar=metavar, callback=_one_of(kind), help=help_, shell_complete=_completing(kind)
    )


_policy = _filter("policy", "POLICY", "Show only entries that this policy allows: strict or extended.")
_engine = _filter(
    "engine", "ENGINE", "Show only entries that this engine supports: native, smdistributed, nccl or gloo."
)
_region = _filter("region", "REGION", "The AWS region, such as us-east-1.")
_framework = _filter("framework", "NAME", "Show only pytorch, tensorflow or huggingface.")


@click.group("catalog", cls=Group)
def command() -> None:
    """List the instance types, framework versions and images that a job file can use.

    The data comes with smdp-launch; no network and no credentials are needed, except for `prices --update`.
    """


@command.command("instances", short_help="List GPU instance types.")
@_policy
@_engine
@_region
@options.json_document
def instances(policy: str | None, engine: str | None, region: str | None, as_json: bool) -> None:
    """List GPU instance types with their hardware, and the engine and the policy that support them.

    --region omits the types that the region is known not to offer.
    """
    from smdp_launch.catalog.listing import list_instances
    from smdp_launch.cli.render.catalog import print_instances, print_json

    listed = list_instances(policy, engine, region)
    print_json(listed) if as_json else print_instances(listed)


@command.command("frameworks", short_help="List framework versions.")
@_framework
@_policy
@_engine
@options.json_document
def frameworks(framework: str | None, policy: str | None, engine: str | None, as_json: bool) -> None:
    """List framework versions with the Python, CUDA and data parallel library of AWS's images."""
    from smdp_launch.catalog.listing import list_frameworks
    from smdp_launch.cli.render.catalog import print_frameworks, print_json

    listed = list_frameworks(framework, policy, engine)
    print_json(listed) if as_json else print_frameworks(listed)


@command.command("images", short_help="List the URIs of AWS's training images.")
@_region
@_framework
@click.option("--version", metavar="VERSION", help="Show only this framework version, such as 2.0.1 or 2.0.")
@_policy
@options.json_document
def images(region: str | None, framework: str | None, version: str | None, policy: str | None, as_json: bool) -> None:
    """List the URIs of AWS's training images. (Engine native needs an image that you build and push.)

    Pass --region for all versions in a region, --version for all regions that have a version, or both.
    """
    from smdp_launch.catalog.listing import list_images
    from smdp_launch.cli.render.catalog import print_images, print_json

    if region is None and version is None:
        raise click.UsageError(
            "add --region for the images of a region, or --version for the images of a framework version"
        )
    listed = list_images(region, framework, version, policy)
    if not listed.rows:
        raise click.UsageError(_why_none(region, framework, version))
    print_json(listed) if as_json else print_images(listed)


@command.command("prices", short_help="List the prices of instances, or fetch them from AWS.")
@click.option(
    "--region",
    metavar="REGION",
    required=True,
    callback=_one_of("region"),
    shell_complete=_completing("region"),
    help="The AWS region, such as us-east-1.",
)
@click.option("--update", is_flag=True, help="Fetch the prices from the AWS Price List API, with your credentials.")
@options.json_document
def prices(region: str, update: bool, as_json: bool) -> None:
    """List the prices that --update has fetched for a region.

    smdp-launch has no built-in prices. --update fetches AWS's on-demand prices and saves them for this user, with
    their date. If a job file names no price table, `plan`, `cost`, `list` and budgets use these prices.
    """
    from datetime import datetime, timezone

    from smdp_launch.catalog.listing import list_prices
    from smdp_launch.catalog.prices import command_for_prices, fetched_prices
    from smdp_launch.cli.render.catalog import print_json, print_prices
    from smdp_launch.cli.render.next_step import print_note
    from smdp_launch.errors import Refused
    from smdp_launch.jobs.price_list import update_prices

    if update:
        fetched = update_prices(region, datetime.now(timezone.utc).date())
        table = fetched.table
        print_note(f"wrote {fetched.path}")
        if fetched.ambiguous:
            print_note(f"two different prices, so none is used: {', '.join(fetched.ambiguous)}")
    else:
        found = fetched_prices(region)
        if found is None:
            raise Refused(f"no prices of {region} were fetched: {command_for_prices(region)}")
        table = found
    listed = list_prices(region, table)
    print_json(listed) if as_json else print_prices(listed)


def _why_none(region: str | None, framework: str | None, version: str | None) -> str:
    from smdp_launch.catalog.listing import list_images
    from smdp_launch.catalog.regions import registry_account
    from smdp_launch.diagnostics import closest

    if region is not None and registry_account(region) is None:
        return f"no registry of AWS's containers is known in {region}"
    known = list(dict.fromkeys(row["version"] for row in list_images("us-east-1", framework).rows))
    if version is None or version in known:
        return "no image matches all options: remove one"
    match = closest(version, known)
    return f"there is no image of version {version}" + (f": did you mean {match}?" if match else "")
