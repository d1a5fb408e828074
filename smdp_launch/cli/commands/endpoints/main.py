from __future__ import annotations

from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from smdp_launch.errors import ExitCode
    from smdp_launch.serving.listing import ListedEndpoint
    from smdp_launch.serving.undeploy import Undeployed

_MOST = 1000


@click.command("endpoints")
@click.option(
    "--region", metavar="REGION", help="List the endpoints of smdp-launch in your AWS account in this region."
)
@click.option("--expire", is_flag=True, help="Delete the endpoints that are past their lifetime.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, _MOST),
    default=100,
    show_default=True,
    help="With --region: examine the newest N endpoints of the account.",
)
@options.json_document
def command(region: str | None, expire: bool, limit: int, as_json: bool) -> ExitCode:
    """List the endpoints that were deployed from this folder: status, age, cost until now and time left.

    With --region, list all endpoints of your AWS account in that region that smdp-launch has deployed. If --expire
    cannot delete an endpoint, it continues with the others, and its exit code is 5.
    """
    from smdp_launch.cli.render.serving import endpoints_json, print_endpoints, print_undeployed
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.errors import ExitCode
    from smdp_launch.jobs.records.current_folder import require_current_folder
    from smdp_launch.serving.listing import endpoints_of_folder, endpoints_of_region

    if region is None:
        require_current_folder()
    found = endpoints_of_folder(print_retry) if region is None else endpoints_of_region(region, limit, print_retry)
    deleted, failed = _expire(found) if expire else ([], {})
    code = ExitCode.SERVICE if failed else ExitCode.OK
    if as_json:
        print_document(endpoints_json(found, deleted, failed))
        return code
    if not expire:
        print_endpoints(found, region)
        return code
    if not deleted and not failed:
        click.echo("no endpoint is past its lifetime")
    for one in deleted:
        print_undeployed(one)
    for name, reason in failed.items():
        click.echo(f"{name} still exists, or a part of it: {reason}", err=True)
    return code


def _expire(found: Sequence[ListedEndpoint]) -> tuple[list[Undeployed], dict[str, str]]:
    """What was deleted, and the reason for each endpoint that was not, or not wholly, deleted."""
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.follow_session import interrupts_deferred
    from smdp_launch.errors import Interrupted, SmdpError
    from smdp_launch.jobs.service.clients import connection
    from smdp_launch.serving.local import let_end_after
    from smdp_launch.serving.undeploy import undeploy

    results: list[Undeployed] = []
    failed: dict[str, str] = {}
    for one in (one for one in found if one.is_expired):
        try:
            with connection(one.where, one.known.state if one.known is not None else None)() as clients:
                clients.on_waiting = print_retry
                with interrupts_deferred(clients):
                    results.append(undeploy(clients, one.name, one.known))
            failed |= {one.name: "; ".join(results[-1].left.values())} if results[-1].left else {}
            let_end_after(one.known)
        except Interrupted:
            raise
        except SmdpError as error:  # the others are billed, too
            failed[one.name] = str(error)
    return results, failed
