"""Deletes a deployment. What does not exist any more is no error, so the command can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial

from smdp_launch.errors import Interrupted, Refused, SmdpError
from smdp_launch.jobs.records.endpoints import Served, record_deleted
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.request.build import PLAN_TAG
from smdp_launch.request.names import S3Location
from smdp_launch.request.serving import SCHEDULE_TAG
from smdp_launch.serving.resources import (
    CONFIG,
    MODEL,
    TRANSFORM,
    Kind,
    delete,
    delete_object,
    delete_schedule,
    describe_with_tags,
    serving_kind,
)


@dataclass
class Undeployed:
    """What a deletion did.

    Args:
        deleted: titles of the resources that were deleted.
        missing: titles of the resources that did not exist.
        left: titles of the resources that could not be deleted, with the reason.
        kept: titles of the resources with the name that smdp-launch has not created.
    """

    endpoint: str
    deleted: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)


class _NotOurs(Exception):
    """Something else has created the resource."""


def undeploy(
    clients: Clients, name: str, known: Served | None, on_deleted: Callable[[str], None] = lambda _: None
) -> Undeployed:
    """Delete the endpoint, its configuration, its model, its packed model and its schedule, if smdp-launch has created
    them.

    Once the first of them is deleted, the others follow, whatever the user does: a later interrupt has no effect.

    Args:
        known: the deployment, as this folder's history has it; None for one from elsewhere.

    Raises:
        Refused: the endpoint, or the transform job, was not deployed by smdp-launch.
        ServiceProblem, EnvironmentProblem: nothing is deleted, because the service refused or did not answer.
        Interrupted: nothing is deleted.
    """
    first = serving_kind(known.kind if known is not None else "realtime")
    try:
        tags = _own_tags(clients, first, name) or {}
    except _NotOurs:
        message = f"{first.title} {name} was not deployed by smdp-launch: it has no tag {PLAN_TAG}"
        raise Refused(message) from None
    except Interrupted as error:
        raise Interrupted(f"{error}; nothing was deleted") from error
    if clients.interrupted.is_set():
        raise Interrupted("interrupted; nothing was deleted")
    result = Undeployed(name)
    schedule = known.schedule if known is not None else tags.get(SCHEDULE_TAG)
    for title, remove in _removals(clients, first, name, known, schedule):
        try:
            existed = remove()
        except _NotOurs:
            result.kept.append(title)
            continue
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


def _removals(
    clients: Clients, first: Kind, name: str, known: Served | None, schedule: str | None
) -> Iterator[tuple[str, Callable[[], bool]]]:
    """The endpoint first, because it costs money."""
    yield f"{first.title} {name}", partial(delete, clients, first, name)
    for kind in (MODEL,) if first is TRANSFORM else (CONFIG, MODEL):
        yield f"{kind.title} {name}", partial(_delete_ours, clients, kind, name)
    if known is not None and known.packed is not None:
        where = S3Location.parse(known.packed)
        yield f"packed model {where}", lambda: delete_object(clients, where)
    if schedule is not None:
        yield f"schedule {schedule}", lambda: delete_schedule(clients, schedule)


def _own_tags(clients: Clients, kind: Kind, name: str) -> dict[str, str] | None:
    """The tags of a resource; None if it does not exist. Raises _NotOurs for one that something else has created."""
    found = describe_with_tags(clients, kind, name)
    if found is not None and PLAN_TAG not in found[1]:
        raise _NotOurs
    return found[1] if found is not None else None


def _delete_ours(clients: Clients, kind: Kind, name: str) -> bool:
    return _own_tags(clients, kind, name) is not None and delete(clients, kind, name)
