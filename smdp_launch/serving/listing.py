"""Lists endpoints, with their age, their cost until now and the rest of their lifetime."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from itertools import islice

from smdp_launch.errors import SmdpError
from smdp_launch.jobs.records.endpoints import Served, served
from smdp_launch.jobs.records.history import LOCAL
from smdp_launch.jobs.service.clients import Clients, connection, ignore_waiting
from smdp_launch.jobs.service.listing import newest_first
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.request.build import PLAN_TAG
from smdp_launch.request.serving import EXPIRES_TAG
from smdp_launch.serving.resources import describe, serving_kind, tags_of, unless_missing

#: Statuses in which no host of the endpoint is billed.
_FREE = frozenset({"Deleted", "Failed", "Completed", "Stopped"})


@dataclass(frozen=True)
class ListedEndpoint:
    """One endpoint.

    Args:
        status: the service's; ``Deleted`` if it does not exist any more; None if the service cannot be reached, and
            ``problem`` is the reason then.
        known: the deployment, if this folder has it.
        expires: when it is to be deleted; None without a lifetime.
    """

    name: str
    where: str
    status: str | None
    created: datetime
    now: datetime
    known: Served | None = None
    expires: datetime | None = None
    problem: str | None = None

    @property
    def age_s(self) -> int:
        return max(0, int((self.now - self.created).total_seconds()))

    @property
    def left_s(self) -> int | None:
        """Seconds until the end of the lifetime; below 0 after it; None without one."""
        return None if self.expires is None else int((self.expires - self.now).total_seconds())

    @property
    def is_expired(self) -> bool:
        return self.left_s is not None and self.left_s <= 0 and self.status not in _FREE

    @property
    def hourly_usd(self) -> float | None:
        return self.known.hourly_usd if self.known is not None else None

    @property
    def usd(self) -> float | None:
        """USD until now; None without a price."""
        if self.hourly_usd is None or self.status in _FREE:
            return None
        return self.hourly_usd * self.age_s / 3600


def endpoints_of_folder(on_waiting: Callable[[Waiting], None] = ignore_waiting) -> list[ListedEndpoint]:
    """The endpoints deployed from the current folder, the last first, until they are undeployed."""
    now = datetime.now(timezone.utc)
    known = list(reversed(served()))
    found: list[ListedEndpoint] = []
    for place in dict.fromkeys((one.where, one.state) for one in known):
        here = [one for one in known if (one.where, one.state) == place]
        try:
            with connection(*place)() as clients:
                clients.on_waiting = on_waiting
                found += [_current(clients, one, now) for one in here]
        except SmdpError as error:
            found += [_listed(one, now, None, problem=str(error)) for one in here]
    order = {one.endpoint: index for index, one in enumerate(known)}
    return sorted(found, key=lambda one: order[one.name])


def _current(clients: Clients, one: Served, now: datetime) -> ListedEndpoint:
    kind = serving_kind(one.kind)
    described = describe(clients, kind, one.endpoint)
    if described is None:
        return _listed(one, now, "Deleted")
    return _listed(one, now, str(described[kind.status]), created=described["CreationTime"])


def _listed(
    one: Served, now: datetime, status: str | None, *, created: datetime | None = None, problem: str | None = None
) -> ListedEndpoint:
    began = created if created is not None else one.deployed_at
    return ListedEndpoint(one.endpoint, one.where, status, began, now, one, one.expires_at, problem)


def endpoints_of_region(
    region: str, most: int, on_waiting: Callable[[Waiting], None] = ignore_waiting
) -> list[ListedEndpoint]:
    """The account's endpoints in ``region`` that smdp-launch has deployed, from any folder, the newest first.

    Args:
        most: of the account's endpoints, so many are examined at most: each needs a call for its tags.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: no credentials, or they have expired.
    """
    now, here = datetime.now(timezone.utc), {one.endpoint: one for one in served() if one.where != LOCAL}
    found: list[ListedEndpoint] = []
    with connection(region)() as clients:
        clients.on_waiting = on_waiting
        call, what = clients.sagemaker.list_endpoints, "the endpoints cannot be listed"
        for one in islice(newest_first(clients, call, "Endpoints", what), most):
            name, arn = str(one["EndpointName"]), str(one["EndpointArn"])
            tags = unless_missing(clients, f"the tags of {name} cannot be read", partial(tags_of, clients, arn))
            if tags is None or PLAN_TAG not in tags:
                continue
            known, expires = here.get(name), _expiry(tags.get(EXPIRES_TAG))
            status = str(one["EndpointStatus"])
            found.append(ListedEndpoint(name, region, status, one["CreationTime"], now, known, expires))
    return found


def _expiry(text: str | None) -> datetime | None:
    """A tag that another tool has changed is no lifetime."""
    try:
        moment = datetime.fromisoformat(text) if text is not None else None
    except ValueError:
        return None
    return moment.replace(tzinfo=timezone.utc) if moment is not None and moment.tzinfo is None else moment
