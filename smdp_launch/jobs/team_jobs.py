"""Lists the training jobs of an account that have a tag, from all machines, with the service's Search call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import islice
from typing import Any

from smdp_launch.catalog.prices import PriceTable, fetched_prices
from smdp_launch.host_counts import host_count, hosts_by_type
from smdp_launch.jobs.records.outcome import ENDED, outcome
from smdp_launch.jobs.service.clients import connection, ignore_waiting
from smdp_launch.jobs.service.listing import PAGE, newest_first
from smdp_launch.jobs.service.retry_policy import Waiting
from smdp_launch.jobs.status.list_jobs import JobFilter, ListedJob


def jobs_of_team(
    key: str,
    value: str,
    region: str | None,
    most: int,
    wanted: JobFilter,
    on_waiting: Callable[[Waiting], None] = ignore_waiting,
) -> list[ListedJob]:
    """The account's training jobs with the tag, the newest first. The service applies all filters. A cost needs fetched
    prices.

    Args:
        region: None for that of the user's AWS configuration.

    Raises:
        ServiceProblem: the service refused, or did not answer.
        EnvironmentProblem: no credentials or no region, or a fetched price table cannot be used.
    """
    with connection(region)() as clients:
        clients.on_waiting = on_waiting
        call, what = clients.sagemaker.search, f"the jobs with the tag {key}={value} cannot be listed"
        query = {"Resource": "TrainingJob", "SearchExpression": {"Filters": list(_filters(key, value, wanted))}}
        found = newest_first(clients, call, "Results", what, min(most, PAGE), **query)
        here = str(clients.sagemaker.meta.region_name)
        prices = fetched_prices(here)
        return [_listed(one["TrainingJob"], here, prices) for one in islice(found, most)]


def _filters(key: str, value: str, wanted: JobFilter) -> Iterator[dict[str, str]]:
    yield {"Name": f"Tags.{key}", "Operator": "Equals", "Value": value}
    if wanted.status is not None:
        yield {"Name": "TrainingJobStatus", "Operator": "Equals", "Value": wanted.status}
    if wanted.since is not None:
        since = f"{wanted.since.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
        yield {"Name": "CreationTime", "Operator": "GreaterThanOrEqualTo", "Value": since}


def _listed(job: Mapping[str, Any], region: str, prices: PriceTable | None) -> ListedJob:
    created: datetime = job["CreationTime"]
    status, resources = str(job["TrainingJobStatus"]), job.get("ResourceConfig", {})
    hosts = host_count(resources)
    price = prices.mean_hourly(region, hosts_by_type(resources)) if prices is not None else None
    billable = job.get("BillableTimeInSeconds")
    return ListedJob(
        str(job["TrainingJobName"]),
        region,
        created.astimezone(timezone.utc),
        status,
        outcome(job).summary if status in ENDED else str(job.get("SecondaryStatus", status)),
        hosts,
        billable,
        None if price is None or billable is None else round(price * hosts * billable / 3600, 6),
    )
