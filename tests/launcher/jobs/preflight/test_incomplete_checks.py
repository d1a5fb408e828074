"""A check that AWS refuses, or cannot finish, keeps the problems that it found and reports no success."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

import smdp_launch as library
from smdp_launch.cli.render.preflight import print_preflight
from smdp_launch.jobs.preflight import buckets, quotas
from smdp_launch.jobs.preflight.check import Account, NotChecked, Result, result_of
from smdp_launch.jobs.preflight.run import Preflight, preflight
from smdp_launch.jobs.service.clients import Clients
from smdp_launch.planning.plan import Plan
from smdp_launch.rules.base.facts import Problem
from tests.conftest import JOB, write_job
from tests.support.services.scripted_service import refusal

P4D = "ml.p4d.24xlarge for training job usage"
P4D_ENDPOINTS = "ml.p4d.24xlarge for endpoint usage"
DENIED = refusal("AccessDenied", "Access Denied", 403)
UNREACHABLE = EndpointConnectionError(endpoint_url="https://aws")


def plan_of(folder: Path, job: str = JOB) -> Plan:
    return library.plan(write_job(folder, job))


def clients_with(**services: Any) -> Clients:
    return Clients(None, services.get("s3"), None, 0.0, lambda name: services[name], lambda name: services[name])


def result(inspect: Callable[[Account], Iterator[Problem | str]], plan: Plan, **services: Any) -> Result:
    account = Account(plan, clients_with(**services))
    return result_of("SMDP815", "data", partial(inspect, account), plan.spec.document)


@pytest.mark.parametrize(
    ("error", "reason", "answered"),
    [
        (NotChecked("the rest is not known"), "the rest is not known", True),
        (DENIED, "no permission for AnyCall", True),
        (refusal("InternalError", status=500), "AnyCall: InternalError", True),
        (UNREACHABLE, str(UNREACHABLE), False),
    ],
)
def test_problem_before_an_error_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception, reason: str, answered: bool
) -> None:
    def inspect(_: Account) -> Iterator[Problem | str]:
        yield Problem(("channels", "train", "s3"), "no data", "upload it")
        raise error

    plan = plan_of(tmp_path)
    found = result(inspect, plan)
    assert [one.message for one in found.problems] == ["no data"]
    assert (found.note, found.checked, found.answered) == (f"partly checked: {reason}", True, answered)
    print_preflight(plan, Preflight((found,)))
    shown = " ".join(capsys.readouterr().out.split())
    assert f"1 SMDP815 data problem: no data; partly checked: {reason}" in shown
    assert "all checks passed" not in shown


def test_problem_before_an_outage_is_reported(tmp_path: Path) -> None:
    class Expired:
        def get_caller_identity(self) -> None:
            raise refusal("ExpiredToken")

    class Unreachable:
        def __getattr__(self, _: str) -> Any:
            raise UNREACHABLE

    done = preflight(clients_with(sts=Expired(), s3=Unreachable()), plan_of(tmp_path))
    assert [one.code for one in done.problems] == ["SMDP811"]
    assert done.results[3].note == str(UNREACHABLE)


class Buckets:
    """The bucket ``shared`` refuses all calls with ``code``, and the others are empty."""

    def __init__(self, code: str, status: int) -> None:
        self._error = (code, status)

    def list_objects_v2(self, Bucket: str, **_: Any) -> dict[str, Any]:  # noqa: N803
        self._refuse(Bucket, "ListObjectsV2")
        return {"KeyCount": 0}

    def head_bucket(self, Bucket: str) -> dict[str, Any]:  # noqa: N803
        self._refuse(Bucket, "HeadBucket")
        return {"BucketRegion": "us-east-1"}

    def _refuse(self, bucket: str, call: str) -> None:
        if bucket == "shared":
            code, status = self._error
            answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(answer, call)


CHANNELS = ['train: {s3: "s3://shared/x"}', 'more: {s3: "s3://bucket/typo/"}']


def with_channels(*channels: str) -> str:
    text = JOB.replace('train: {s3: "s3://bucket/train"}', "\n  ".join(channels))
    return text.replace("local: {channels: {train: data}}\n", "")


@pytest.mark.parametrize("channels", [CHANNELS, CHANNELS[::-1]], ids=["refused first", "refused last"])
def test_refused_channel_hides_no_problem_of_another(tmp_path: Path, channels: list[str]) -> None:
    plan = plan_of(tmp_path, with_channels(*channels))
    found = result(buckets.data, plan, s3=Buckets("AccessDenied", 403))
    assert [one.message for one in found.problems] == ["there is no object under s3://bucket/typo/"]
    assert found.note == "not checked, no permission for ListObjectsV2: train"


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [("403", 403, "no permission for HeadBucket"), ("503", 503, "HeadBucket: 503")],
)
def test_refused_bucket_shows_the_reason(tmp_path: Path, code: str, status: int, reason: str) -> None:
    s3 = Buckets(code, status)
    some = result(buckets.buckets, plan_of(tmp_path, with_channels(*CHANNELS)), s3=s3)
    assert (some.checked, some.note) == (True, f"not checked, {reason}: shared; bucket")
    job = with_channels(CHANNELS[0]).replace("s3://bucket/output", "s3://shared/output")
    none = result(buckets.buckets, plan_of(tmp_path, job), s3=s3)
    assert (none.checked, none.note) == (False, reason)


class ManyJobs:
    """An account with running jobs and endpoints of one p4d each, and a quota of p4d."""

    def __init__(self, running: int, quota: float) -> None:
        self._running, self._quota = running, quota

    def get_paginator(self, _: str) -> Any:
        listed = [{"QuotaName": name, "Value": self._quota} for name in (P4D, P4D_ENDPOINTS)]
        return SimpleNamespace(paginate=lambda **_: [{"Quotas": listed}])

    def list_training_jobs(self, **arguments: Any) -> dict[str, Any]:
        return self._page("TrainingJobSummaries", {"TrainingJobName": "j"}, **arguments)

    def list_endpoints(self, **arguments: Any) -> dict[str, Any]:
        return self._page("Endpoints", {"EndpointName": "e", "EndpointStatus": "InService"}, **arguments)

    def _page(self, field: str, one: dict[str, Any], MaxResults: int = 10, NextToken: str = "0", **_: str) -> Any:  # noqa: N803
        end = min(self._running, int(NextToken) + MaxResults)
        more = {"NextToken": str(end)} if end < self._running else {}
        return {field: [one] * (end - int(NextToken)), **more}

    def describe_training_job(self, **_: str) -> dict[str, Any]:
        return {"ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1}}

    def describe_endpoint(self, **_: str) -> dict[str, Any]:
        return {"EndpointConfigName": "c"}

    def describe_endpoint_config(self, **_: str) -> dict[str, Any]:
        variant = {"VariantName": "v", "InstanceType": "ml.p4d.24xlarge", "InitialInstanceCount": 1}
        return {"ProductionVariants": [variant]}


@pytest.mark.parametrize(
    ("running", "quota", "is_checked", "text"),
    [
        (60, 61, True, "the quota is too small for 2 x ml.p4d.24xlarge: limit 61, in use 60, needed 2"),
        (60, 62, True, "limit 62, in use 60, needed 2"),
        (500, 502, True, "limit 502, in use 500, needed 2"),
        (501, 501, True, "the quota is too small for 2 x ml.p4d.24xlarge: limit 501, in use at least 500, needed 2"),
        (
            501,
            1000,
            False,
            "limit 1000, in use at least 500, needed 2; there are more than 500 {what}, and the others were not "
            "counted",
        ),
    ],
)
def test_quota_counts_everything_or_is_not_checked(
    tmp_path: Path, running: int, quota: float, is_checked: bool, text: str
) -> None:
    account, plan = ManyJobs(running, quota), plan_of(tmp_path)
    found = result(quotas.training_quota, plan, **{"sagemaker": account, "service-quotas": account})
    assert (found.checked, shown(found)) == (is_checked, text.format(what="running jobs"))
    serve = "serve: {image: mine/serving:1, instance_type: ml.p4d.24xlarge, instance_count: 2}\n"
    spec = plan_of(tmp_path, JOB + serve + "silence: [SMDP463, SMDP805]\n").spec
    found = result_of("SMDP824", "hosting", partial(quotas.hosting_quota, spec, lambda _: account), spec.document)
    assert (found.checked, shown(found)) == (is_checked, text.format(what="endpoints"))


def shown(found: Result) -> str:
    return "; ".join(one.message for one in found.problems) or found.note
