from __future__ import annotations

from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.errors import ExitCode


@click.command("undeploy")
@options.endpoint_name
@click.option("--wait/--no-wait", default=True, help="Wait until the endpoint is gone (the default).")
@options.endpoint_region
@options.json_document
def command(name: str | None, wait: bool, region: str | None, as_json: bool) -> ExitCode:
    """Delete endpoint NAME (default: the latest), its configuration, its model and its packed model.

    The model that the training job wrote stays. The command can be repeated. Once it has deleted the endpoint, Ctrl-C
    does not keep the rest.
    """
    from smdp_launch.cli.render.next_step import print_note
    from smdp_launch.cli.render.serving import print_undeployed, undeployed_json
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.follow_session import interrupts_deferred
    from smdp_launch.cli.shared.serving import served_endpoint
    from smdp_launch.errors import ExitCode
    from smdp_launch.serving.follow import wait_until_gone
    from smdp_launch.serving.local import let_end
    from smdp_launch.serving.undeploy import undeploy

    endpoint, known, connect = served_endpoint(name, region, or_job=True)
    result = None
    try:
        with connect() as clients, interrupts_deferred(clients):
            clients.on_waiting = print_retry
            result = undeploy(clients, endpoint, known)
            if as_json:
                print_document(undeployed_json(result))
            else:
                print_undeployed(result)
            is_going = wait and any(one.startswith("endpoint ") for one in result.deleted)
            if is_going and not wait_until_gone(clients, endpoint, clients.interrupted.wait):
                print_note("the service continues to remove the endpoint")
    except KeyboardInterrupt:
        if result is None:
            click.echo("nothing was deleted", err=True)
        raise
    if known is not None and known.keeps_cloud and known.state is not None:
        let_end(known.state)
    return ExitCode.SERVICE if result.left else ExitCode.OK
