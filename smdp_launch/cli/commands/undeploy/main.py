from __future__ import annotations

from typing import TYPE_CHECKING

import click

from smdp_launch.cli.render.json_output import print_document
from smdp_launch.cli.shared import options

if TYPE_CHECKING:
    from smdp_launch.cli.shared.serving import Target
    from smdp_launch.errors import ExitCode


@click.command("undeploy")
@options.endpoint_name
@click.option("--yes", "-y", is_flag=True, help="Delete without confirmation.")
@click.option("--wait/--no-wait", default=True, help="Wait until the endpoint is deleted (the default).")
@options.endpoint_region
@options.json_document
def command(name: str | None, yes: bool, wait: bool, region: str | None, as_json: bool) -> ExitCode:
    """Delete endpoint NAME (default: the latest), its configuration, its model and its packed model.

    The model that the training job wrote remains. On AWS, the command asks for confirmation. You can repeat the
    command. After the command has deleted the endpoint, Ctrl-C does not stop the other deletions.
    """
    from smdp_launch.cli.render.next_step import print_note
    from smdp_launch.cli.render.serving import print_undeployed, undeployed_json
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.follow_session import interrupts_deferred
    from smdp_launch.cli.shared.serving import served_endpoint
    from smdp_launch.errors import ExitCode
    from smdp_launch.serving.follow import wait_until_gone
    from smdp_launch.serving.local import let_end_after
    from smdp_launch.serving.undeploy import undeploy

    target = served_endpoint(name, region, or_job=True)
    result = None
    try:
        _confirm(target, yes, ask=not as_json)
        with target.connect() as clients, interrupts_deferred(clients):
            clients.on_waiting = print_retry
            result = undeploy(clients, target.name, target.known)
            if as_json:
                print_document(undeployed_json(result))
            else:
                print_undeployed(result)
            is_going = wait and any(one.startswith("endpoint ") for one in result.deleted)
            if is_going and not wait_until_gone(clients, target.name, clients.interrupted.wait):
                print_note("the service continues to remove the endpoint")
    except (KeyboardInterrupt, click.Abort):
        if result is None:
            click.echo("nothing was deleted", err=True)
        raise
    finally:  # also if standard output is closed
        if result is not None:
            let_end_after(target.known)
    return ExitCode.SERVICE if result.left else ExitCode.OK


def _confirm(target: Target, yes: bool, *, ask: bool) -> None:
    """Ask before something on AWS is deleted, as `deploy` asks before something there is created."""
    from smdp_launch.cli.shared.confirmation import confirm
    from smdp_launch.jobs.records.history import LOCAL

    if target.where == LOCAL:
        return
    what = f"the endpoint {target.name}, its configuration and its model"
    if target.kind == "batch":
        what = f"the model of the batch transform {target.name}, which stops"
    confirm(
        yes,
        ask=ask,
        question=f"Delete {what} on AWS ({target.where})?",
        subject=f"a deletion on AWS ({target.where}) cannot be undone",
        refusal="nothing was deleted",
    )
