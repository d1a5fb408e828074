"""Creates the resources of a deployment: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from smdp_launch.errors import Refused, ServiceProblem, SmdpError
from smdp_launch.jobs.records.endpoints import Served, exact_time, record_deleted, record_served
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.jobs.service.error_kinds import ErrorKind, error_kind
from smdp_launch.jobs.transfer.upload import Progress, ignore_progress
from smdp_launch.request.build import PLAN_TAG
from smdp_launch.request.serving import serve_input
from smdp_launch.serving.packing import check_interrupt, packed_resource
from smdp_launch.serving.plan import ServingPlan
from smdp_launch.serving.resources import (
    CONFIG,
    ENDPOINT,
    MODEL,
    TRANSFORM,
    Resource,
    describe_with_tags,
    resource,
    schedule,
)
from smdp_launch.units import listed

_KINDS = {
    "CreateModel": MODEL,
    "CreateEndpointConfig": CONFIG,
    "CreateEndpoint": ENDPOINT,
    "CreateTransformJob": TRANSFORM,
}


@dataclass
class RolledBack:
    """What happened to the resources that a deployment had created.

    Args:
        deleted: titles.
        left: the titles of those that could not be deleted, with the reason.
    """

    deleted: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """Whether anything is left, in one sentence."""
        if self.left:
            reasons = "; ".join(f"{title} ({reason})" for title, reason in self.left.items())
            return f"these could not be deleted: {reasons}; `smdp-launch undeploy {name}` deletes them"
        if self.deleted:
            return f"nothing of the deployment is left: deleted {listed(self.deleted)}"
        return "nothing was created"


def forget(plan: ServingPlan, undone: RolledBack) -> None:
    """Record that nothing is left of a deployment, unless something is."""
    if not undone.left:
        record_deleted(plan.name, datetime.now(timezone.utc), plan.deployment.run)


def existing_deployment(clients: Clients, plan: ServingPlan) -> str | None:
    """The status of the endpoint if this same deployment exists already; None if nothing exists. Each batch transform
    is new.

    Raises:
        Refused: another endpoint has the name, or an earlier deployment of the job.
        ServiceProblem: the service refused, or did not answer.
    """
    found = describe_with_tags(clients, ENDPOINT, plan.name) if plan.serve.kind != "batch" else None
    if found is None:
        return None
    description, tags = found
    status = str(description[ENDPOINT.status])
    if tags.get(PLAN_TAG) == plan.deployment.hash and status in ("InService", "Creating"):
        return status
    raise Refused(
        f"{plan.name} is deployed already, with other settings or another status ({status}): delete that deployment "
        f"first with `smdp-launch undeploy {plan.name}`"
    )


def record(plan: ServingPlan, state: str | None, *, keeps_cloud: bool = False) -> None:
    """Record the deployment before its first request.

    Raises:
        EnvironmentProblem: the history cannot be written.
    """
    record_served(
        Served(
            endpoint=plan.name,
            kind=plan.serve.kind,
            where=plan.where,
            deployment_hash=plan.deployment.hash,
            deployed=exact_time(datetime.now(timezone.utc)),
            hosts=plan.hosts,
            hourly_usd=plan.hourly_usd,
            expires=exact_time(plan.expires) if plan.expires is not None else None,
            schedule=plan.name if plan.deletes_itself else None,
            packed=str(plan.packed) if plan.packed is not None else None,
            content_type=plan.serve.content_type,
            inputs=str(serve_input(plan.spec, plan.name)) if plan.serve.kind == "async" else None,
            state=state,
            keeps_cloud=keeps_cloud,
            instance_type=plan.serve.instance_type if plan.serve.kind != "serverless" else None,
            run=plan.deployment.run,
        )
    )


def create_all(
    clients: Clients,
    plan: ServingPlan,
    on_created: Callable[[str], None] = lambda _: None,
    progress: Progress = ignore_progress,
    on_rolled_back: Callable[[RolledBack], None] = lambda _: None,
) -> list[Resource]:
    """Create the resources in order, the endpoint last. Return them.

    If one cannot be created, or the user interrupts (``clients.interrupted``), those that were created are deleted.

    Raises:
        ServiceProblem, EnvironmentProblem, Refused: one could not be created; the message says what is left.
        Interrupted: the message says what is left.
    """
    created: list[Resource] = []
    try:
        for one in _resources(clients, plan, progress):
            check_interrupt(clients)
            created.append(one)  # before the call: its answer may be lost
            one.create()
            on_created(one.title)
    except SmdpError as error:
        if created and _was_refused(error):
            created.pop()
        undone = roll_back(clients, created)
        on_rolled_back(undone)
        raise type(error)(f"{error}; {undone.text(plan.name)}") from error
    except BaseException:
        on_rolled_back(roll_back(clients, created))
        raise
    return created


def roll_back(clients: Clients, created: Sequence[Resource]) -> RolledBack:
    """Delete the resources, the last one first. An interrupt does not stop it."""
    result = RolledBack()
    for one in reversed(created):
        clients.interrupted.clear()
        try:
            if one.delete():
                result.deleted.append(one.title)
        except SmdpError as error:
            result.left[one.title] = str(error)
    clients.interrupted.clear()
    return result


def _resources(clients: Clients, plan: ServingPlan, progress: Progress) -> Iterator[Resource]:
    if plan.packed is not None:
        yield packed_resource(clients, plan, plan.packed, progress)
    for operation, request in plan.requests.items():
        if operation == "CreateSchedule":
            yield schedule(clients, request)
        else:
            yield resource(clients, _KINDS[operation], request)


def _was_refused(error: SmdpError) -> bool:
    """Whether nothing was created: the service refused, or the resource with the name is not ours."""
    if isinstance(error, Refused):
        return True
    return isinstance(error, ServiceProblem) and error_kind(error.__cause__) is ErrorKind.FINAL
