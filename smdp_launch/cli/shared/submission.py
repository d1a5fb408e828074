"""The way of a command from a plan to the service that its job is submitted to."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from smdp_launch.jobs.service.clients import Clients
    from smdp_launch.planning.plan import Plan


def connect_for(
    plan: Plan, ignore: Collection[str], *, yes: bool, as_json: bool, require: Callable[[], None], records: bool = True
) -> Clients:
    """Show the plan, ask for confirmation, check the account, and record the plan.

    Args:
        ignore: codes of the account's checks that may fail.
        yes: do not ask.
        as_json: show and ask nothing.
        require: raises an error if the job cannot be launched.
        records: whether this plan is the one that is submitted.
    """
    from smdp_launch.cli.render.plan import print_plan
    from smdp_launch.cli.render.terminal.retries import print_retry
    from smdp_launch.cli.shared.confirmation import confirm
    from smdp_launch.jobs.preflight.run import require_account
    from smdp_launch.jobs.records.history import record_plan
    from smdp_launch.jobs.service.clients import connect_aws

    if not as_json:
        print_plan(plan)
    require()
    require_receivers(plan)
    confirm(yes, ask=not as_json)
    clients = connect_aws(plan.spec.region)
    clients.on_waiting = print_retry
    require_account(clients, plan, ignore)
    if records:
        record_plan(plan, datetime.now(timezone.utc))
    return clients


def require_receivers(plan: Plan) -> None:
    """Raises:
    Refused: the plan's notifications go to a webhook whose variable is not set.
    """
    from smdp_launch.jobs.notifications.receivers import require_webhook

    notify = plan.spec.notify
    if notify is not None and notify.webhook is not None and (plan.local is None or notify.local):
        require_webhook(notify.webhook)
