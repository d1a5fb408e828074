"""Capacity for a job's hosts, as far as `account.yaml` limits it: the job waits for it, and fails if there is none.

As on SageMaker, a job that waits is pending with a message, and gets the first of its preferred types that there is
capacity for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from smdp_launch.host_counts import hosts_by_type
from smdp_launch.localcloud.errors import ServiceError
from smdp_launch.localcloud.files import write_json
from smdp_launch.localcloud.layout import ACCOUNT_FILE, JobFolder

if TYPE_CHECKING:
    from smdp_launch.localcloud.account import Account

_TICK = 0.1  # seconds between looks at the account
_READY = "Preparing the simulated hosts for training"
_PENDING = "Insufficient capacity error from EC2 while launching instances, retrying!"
_FAILED = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)

Request = Mapping[str, Any]


class NoCapacity(Exception):
    """The job gets no hosts; the message is its FailureReason."""


def candidates(resources: Request) -> Iterator[tuple[str, int]]:
    """The types that the job may get, in its order, each with its number of hosts."""
    preferred = resources.get("InstancePreferences")
    if not preferred:
        yield resources["InstanceType"], resources["InstanceCount"]
        return
    for one in preferred:
        yield one["InstanceType"], one.get("InstanceCount", resources.get("InstanceCount", 1))


def acquire(folder: JobFolder, request: Request, explain: Callable[[str], None]) -> None:
    """Wait until there is capacity or a stop is requested, and write the chosen type into the job's request.

    Args:
        explain: sets the message of the pending job.

    Raises:
        NoCapacity: there was none in time.
    """
    root = folder.state_folder.root
    if not (root / ACCOUNT_FILE).exists():  # without it there is capacity for every type
        if not request["ResourceConfig"].get("InstanceGroups"):
            _take(folder, request, *next(candidates(request["ResourceConfig"])))
        return
    # pydantic and YAML take a third of the time that a supervisor takes to start, and few clouds have this file
    from smdp_launch.localcloud.account import AccountFile

    account = AccountFile(root)
    limit = request["StoppingCondition"].get("MaxPendingTimeInSeconds", math.inf)
    began, is_waiting = time.monotonic(), False
    while not folder.stop.exists():
        try:
            known = account.read()
        except ServiceError as error:
            raise NoCapacity(f"InternalServerError: {error}") from error
        if _choose(folder, request, known):
            if is_waiting:
                explain(_READY)
            return
        if time.monotonic() >= began + min(limit, known.capacity_wait):
            raise NoCapacity(_FAILED)
        if not is_waiting:
            is_waiting = True
            explain(_PENDING)
        time.sleep(_TICK)


def _choose(folder: JobFolder, request: Request, account: Account) -> bool:
    """Take the first type with capacity. False if no type has any, or that of a group has not enough."""
    resources = request["ResourceConfig"]
    if resources.get("InstanceGroups"):
        return all(account.has_capacity(folder.region, *one) for one in hosts_by_type(resources).items())
    for kind, count in candidates(resources):
        if account.has_capacity(folder.region, kind, count):
            _take(folder, request, kind, count)
            return True
    return False


def _take(folder: JobFolder, request: Request, kind: str, count: int) -> None:
    """Write the type into the request if the job has several to choose from."""
    resources = request["ResourceConfig"]
    if "InstancePreferences" in resources:
        selected = {"SelectedInstanceType": kind, "SelectedInstanceCount": count}
        chosen = {**resources, "InstanceType": kind, "InstanceCount": count, **selected}
        write_json(folder.request, {**request, "ResourceConfig": chosen})
