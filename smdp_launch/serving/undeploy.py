"""Deletes a deployment. What does not exist any more is no error, so the command can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone

from smdp_launch.errors import Interrupted, Refused, SmdpError
from smdp_launch.jobs.records.endpoints import Served, record_deleted
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.request.build import PLAN_TAG
from smdp_launch.request.names import S3Location
from smdp_launch.serving.resources import (
    CONFIG,
    ENDPOINT,
    MODEL,
    TRANSFORM,
    delete,
    delete_object,
    delete_schedule,
    describe_with_tags,
)


@dataclass
class Undeployed:
    """What a deletion did.

    Args:
        deleted: titles of the resources that were deleted.
        missing: titles of the resources that did not exist.
        left: titles of the resources that could not be deleted, with the reason.
    """

    endpoint: str
    deleted: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def undeploy(
    clients: Clients, name: str, known: Served | None, on_deleted: Callable[[str], None] = lambda _: None
) -> Undeployed:
    """Delete the endpoint, its configuration, its model, its packed model and its schedule.

    Once the first of them is deleted, the others follow, whatever the user does: a later interrupt has no effect.

    Args:
        known: the deployment, as this folder's history has it; None for one from elsewhere.

    Raises:
        Refused: the endpoint was not deployed by smdp-launch.
        ServiceProblem, EnvironmentProblem: nothing is deleted, because the service refused or did not answer.
        Interrupted: nothing is deleted.
    """
    try:
        _require_ours(clients, name)
    except Interrupted as error:
        raise Interrupted(f"{error}; nothing was deleted") from error
    if clients.interrupted.is_set():
        raise Interrupted("interrupted; nothing was deleted")
    result = Undeployed(name)
    for title, remove in _removals(clients, name, known):
        try:
            existed = remove()
        except SmdpError as error:
            if not result.deleted:
                raise type(error)(f"{error}; nothing was deleted") from error
            result.left[title] = str(error)
            continue
        finally:
            clients.interrupted.clear()  # all or nothing
        (result.deleted if existed else result.missing).append(title)
        if existed:
            on_deleted(title)
    if not result.left:
        record_deleted(name, datetime.now(timezone.utc))
    return result


def _removals(clients: Clients, name: str, known: Served | None) -> Iterator[tuple[str, Callable[[], bool]]]:
    """The endpoint first, because it costs money."""
    if known is not None and known.kind == "batch":
        yield f"transform job {name}", lambda: delete(clients, TRANSFORM, name)
    else:
        yield f"endpoint {name}", lambda: delete(clients, ENDPOINT, name)
        yield f"endpoint configuration {name}", lambda: delete(clients, CONFIG, name)
    yield f"model {name}", lambda: delete(clients, MODEL, name)
    if known is not None and known.packed is not None:
        where = S3Location.parse(known.packed)
        yield f"packed model {where}", lambda: delete_object(clients, where)
    if known is not None and known.schedule is not None:
        schedule = known.schedule
        yield f"schedule {schedule}", lambda: delete_schedule(clients, schedule)


def _require_ours(clients: Clients, name: str) -> None:
    """An endpoint that something else created is not deleted."""
    found = describe_with_tags(clients, ENDPOINT, name)
    if found is not None and PLAN_TAG not in found[1]:
        raise Refused(f"endpoint {name} was not deployed by smdp-launch: it has no tag {PLAN_TAG}")
