"""The history of deployments in the folder of the jobs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from smdp_launch.errors import Refused
from smdp_launch.jobs.records.endpoints import (
    Served,
    deployments,
    exact_time,
    record_deleted,
    record_served,
    resolve_endpoint,
    served,
)
from smdp_launch.jobs.records.history import launches, record_launch

pytestmark = pytest.mark.usefixtures("own_folder")
NOW = datetime(2026, 11, 27, 5, 0, 0, tzinfo=timezone.utc)


def entry(name: str, after: int = 0, **more: object) -> Served:
    return Served(name, "realtime", "us-east-1", "hash", exact_time(NOW + timedelta(seconds=after)), **more)  # type: ignore[arg-type]


def test_deployment_is_known_until_it_is_deleted() -> None:
    record_served(entry("one", expires=exact_time(NOW), hourly_usd=0.5, hosts=2))
    assert served() == [entry("one", expires=exact_time(NOW), hourly_usd=0.5, hosts=2)]
    record_deleted("one", NOW + timedelta(seconds=1))
    assert served() == []


def test_second_deployment_of_a_job_is_known_again() -> None:
    record_served(entry("one"))
    record_deleted("one", NOW + timedelta(microseconds=1))
    record_served(entry("one", 1))
    assert [one.endpoint for one in served()] == ["one"]


def test_failed_deployment_leaves_a_simultaneous_one_of_the_job() -> None:
    record_served(entry("one", run="first"))
    record_served(entry("one", 1, run="second"))
    record_deleted("one", NOW + timedelta(seconds=2), "second")
    assert [one.run for one in served()] == ["first"]
    assert [(one.run, end) for one, end in deployments()] == [("first", None), ("second", NOW + timedelta(seconds=2))]
    record_served(entry("one", 3, run="second"))
    assert [one.run for one in served()] == ["second"]
    record_deleted("one", NOW + timedelta(seconds=4))
    assert served() == []


def test_deployments_and_jobs_share_a_history() -> None:
    record_launch("one", "us-east-1", "job.yaml", "hash", NOW)
    record_served(entry("one"))
    record_deleted("one", NOW + timedelta(seconds=1))
    assert [one.job for one in launches()] == ["one"]


def test_name_is_the_latest_a_whole_name_or_a_prefix() -> None:
    for number, name in enumerate(("first-a", "first-b", "other")):
        record_served(entry(name, number))
    assert [getattr(resolve_endpoint(name), "endpoint", None) for name in (None, "latest", "oth", "first-a", "x")] == [
        "other",
        "other",
        "other",
        "first-a",
        None,
    ]
    with pytest.raises(Refused, match="2 endpoints begin with first"):
        resolve_endpoint("first")
