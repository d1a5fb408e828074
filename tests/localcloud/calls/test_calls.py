"""The calls about jobs: lists, tags, updates, filtered logs and metrics, with AWS's own clients."""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from smdp_launch.localcloud.protocol.constraints import violations
from smdp_launch.localcloud.protocol.requests import service_model
from smdp_launch.localcloud.services.logs.filtering import pattern
from tests.localcloud.conftest import open_cloud_on
from tests.support.services.cloud import Cloud, client_of
from tests.support.waiting import wait_for

GROUP = "/aws/sagemaker/TrainingJobs"
LOSSES = """\
import time
for step in range(4):
    print(f"loss={1 / (step + 1):.3f}; lr=1e-3", flush=True)
    print("noise", step, flush=True)
print("the end", flush=True)
"""
METRICS = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}, {"Name": "rate", "Regex": "lr=([0-9.e-]+)"}]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A cloud in which jobs a-1, a-2 and b-1 have ended, in this order; the last one failed."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        cloud = open_cloud_on(tmp_path_factory.mktemp("calls") / "state", stack)
        algorithm = {"TrainingImage": "image", "TrainingInputMode": "File", "MetricDefinitions": METRICS}
        for name in ("a-1", "a-2"):
            cloud.run(name, LOSSES, AlgorithmSpecification=algorithm, hosts=2)
        cloud.run("b-1", "raise SystemExit(3)")
        yield cloud


def listed(cloud: Cloud, **filters: Any) -> list[str]:
    answer = cloud.sagemaker.list_training_jobs(**filters)
    return [one["TrainingJobName"] for one in answer["TrainingJobSummaries"]]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["a-1", "a-2", "b-1"]),
        ({"SortOrder": "Descending"}, ["b-1", "a-2", "a-1"]),
        ({"SortBy": "Name", "SortOrder": "Descending"}, ["b-1", "a-2", "a-1"]),
        ({"SortBy": "Status"}, ["a-1", "a-2", "b-1"]),
        ({"NameContains": "A-"}, ["a-1", "a-2"]),
        ({"StatusEquals": "Failed"}, ["b-1"]),
        ({"StatusEquals": "InProgress"}, []),
        ({"WarmPoolStatusEquals": "Available"}, []),
        ({"MaxResults": 2}, ["a-1", "a-2"]),
    ],
)
def test_job_list_filters_and_sorts(ran: Cloud, filters: dict[str, Any], names: list[str]) -> None:
    assert listed(ran, **filters) == names


@pytest.mark.parametrize("kind", ["CreationTime", "LastModifiedTime"])
@pytest.mark.parametrize("name", ["a-1", "a-2", "b-1"])
def test_job_list_filters_by_time(ran: Cloud, kind: str, name: str) -> None:
    times = {one["TrainingJobName"]: one[kind] for one in ran.sagemaker.list_training_jobs()["TrainingJobSummaries"]}
    bound = times[name].replace(microsecond=0)  # clients send whole seconds
    assert listed(ran, **{f"{kind}After": bound}) == [one for one, time in times.items() if time > bound]
    assert listed(ran, **{f"{kind}Before": bound}) == [one for one, time in times.items() if time < bound]
    assert name in listed(ran, **{f"{kind}After": bound})


@pytest.mark.parametrize("order", ["Ascending", "Descending"])
def test_pages_stay_complete_when_jobs_are_created_in_between(ran: Cloud, order: str) -> None:
    first = ran.sagemaker.list_training_jobs(MaxResults=1, SortOrder=order, SortBy="CreationTime")
    new = f"between-{order.lower()}"
    ran.run(new, "print(1)")
    rest = listed(ran, MaxResults=100, SortOrder=order, NextToken=first["NextToken"])
    names = [first["TrainingJobSummaries"][0]["TrainingJobName"], *rest]
    assert len(names) == len(set(names))
    assert {"a-1", "a-2", "b-1"} <= set(names)
    assert (new in names) == (order == "Ascending")


def test_page_has_ten_jobs_without_max_results(ran: Cloud) -> None:
    jobs = ran.state_dir / "jobs"
    copies = [shutil.copytree(jobs / "a-1", jobs / f"copy-{number}") for number in range(12)]
    try:
        assert (len(listed(ran, NameContains="copy-")), len(listed(ran, NameContains="copy-", MaxResults=100))) == (
            10,
            12,
        )
    finally:
        for one in copies:
            shutil.rmtree(one)


def test_paginator_returns_all_jobs(ran: Cloud) -> None:
    pages = ran.sagemaker.get_paginator("list_training_jobs").paginate(PaginationConfig={"PageSize": 1})
    names = [one["TrainingJobName"] for page in pages for one in page["TrainingJobSummaries"]]
    assert names == listed(ran)


def test_deleted_tag_can_be_added_again(ran: Cloud) -> None:
    arn = ran.describe("b-1")["TrainingJobArn"]
    ran.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "vision"}, {"Key": "cost", "Value": "1"}])
    ran.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["team", "unknown"])
    assert ran.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "cost", "Value": "1"}]
    ran.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "text"}])
    assert {"Key": "team", "Value": "text"} in ran.sagemaker.list_tags(ResourceArn=arn)["Tags"]


def test_tag_of_create_request_can_be_deleted(ran: Cloud) -> None:
    ran.run("tagged", "print(1)", Tags=[{"Key": "a", "Value": "1"}])
    arn = ran.describe("tagged")["TrainingJobArn"]
    ran.sagemaker.delete_tags(ResourceArn=arn, TagKeys=["a"])
    assert ran.sagemaker.list_tags(ResourceArn=arn)["Tags"] == []


def test_update_changes_the_description(ran: Cloud) -> None:
    answer = ran.sagemaker.update_training_job(TrainingJobName="a-1", ResourceConfig={"KeepAlivePeriodInSeconds": 60})
    assert answer["TrainingJobArn"] == ran.describe("a-1")["TrainingJobArn"]
    assert ran.describe("a-1")["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 60
    assert ran.describe("a-1")["ResourceConfig"]["InstanceCount"] == 2
    with pytest.raises(ClientError, match="in status Completed"):
        ran.sagemaker.update_training_job(TrainingJobName="a-1", RemoteDebugConfig={"EnableRemoteDebug": True})
    with pytest.raises(ClientError, match=r"\(ResourceNotFound\)"):
        ran.sagemaker.update_training_job(TrainingJobName="unknown")


def test_stop_of_ended_job_is_refused(ran: Cloud) -> None:
    with pytest.raises(ClientError, match=r"\(ValidationException\).*in status Failed"):
        ran.sagemaker.stop_training_job(TrainingJobName="b-1")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"StatusEquals": "Done"}, "'statusEquals' failed to satisfy constraint: Member must satisfy enum value set"),
        ({"MaxResults": 101}, "'maxResults' failed to satisfy constraint: Member must have value less than or equal"),
        ({"NameContains": "a" * 64}, "'nameContains' failed to satisfy constraint: Member must have length less"),
        ({"NameContains": "?"}, "Member must satisfy regular expression pattern"),
        ({"NextToken": "x"}, "Invalid NextToken"),
    ],
)
def test_request_that_violates_the_service_model_is_refused(ran: Cloud, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError, match="ValidationException") as caught:
        ran.sagemaker.list_training_jobs(**changes)
    assert message in caught.value.response["Error"]["Message"]


def sent(cloud: Cloud, body: dict[str, Any]) -> list[str]:
    """The jobs that are listed for a body that no AWS client would send."""
    sagemaker = client_of(cloud.endpoint, "sagemaker")
    encoded = json.dumps(body).encode()
    sagemaker.meta.events.register(
        "before-call.sagemaker.ListTrainingJobs", lambda params, **_: params.update(body=encoded)
    )
    return [one["TrainingJobName"] for one in sagemaker.list_training_jobs()["TrainingJobSummaries"]]


def test_time_may_be_sent_as_text(ran: Cloud) -> None:
    first, second = (ran.describe(name)["CreationTime"] for name in ("a-1", "a-2"))
    between = first + (second - first) / 2
    assert sent(ran, {"CreationTimeBefore": between.isoformat()}) == ["a-1"]
    assert sent(ran, {"CreationTimeBefore": between.timestamp()}) == ["a-1"]


def token(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "body",
    [
        {"CreationTimeAfter": "tomorrow"},
        {"CreationTimeAfter": [1]},
        {"CreationTimeAfter": 1e300},
        {"CreationTimeAfter": float("inf")},
        {"NextToken": token([1, 2])},
        {"NextToken": token(["x", "a-1"])},
        {"NextToken": token([1, "a-1"]), "SortBy": "Name"},
        {"NextToken": token([None, "a-1"]), "SortBy": "Status"},
        {"NextToken": token(5)},
        {"NextToken": base64.urlsafe_b64encode(b"[" * 6000).decode()},
    ],
    ids=range(10),
)
def test_invalid_times_and_tokens_are_refused(ran: Cloud, body: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="ValidationException"):
        sent(ran, body)


def test_filtered_events_come_once_in_time_order(ran: Cloud) -> None:
    pages = ran.logs.get_paginator("filter_log_events").paginate(
        logGroupName=GROUP, logStreamNamePrefix="a-1/", PaginationConfig={"PageSize": 3}
    )
    events = [one for page in pages for one in page["events"]]
    assert [one["timestamp"] for one in events] == sorted(one["timestamp"] for one in events)
    assert len({one["eventId"] for one in events}) == len(events)
    messages = [one["message"] for one in events if "noise" in one["message"]]
    assert sorted(messages) == sorted(f"[algo-{host}:{host - 1}] noise {step}" for host in (1, 2) for step in range(4))
    assert {one["logStreamName"].partition("/")[0] for one in events} == {"a-1"}


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("noise", 8),
        ('"noise 3"', 2),
        ("noise -3", 6),
        ('?end ?"noise 3"', 4),
        ("Noise", 0),
        ("%noise [01]$%", 4),
        ("algo-1 loss", 4),
    ],
)
def test_filter_pattern_selects_events(ran: Cloud, pattern: str, count: int) -> None:
    found = ran.logs.filter_log_events(logGroupName=GROUP, logStreamNamePrefix="a-2/", filterPattern=pattern)["events"]
    wanted = [one for one in found if any(word in one["message"] for word in ("noise", "loss", "the end"))]
    assert len(wanted) == count, found


def test_time_range_selects_events(ran: Cloud) -> None:
    whole = ran.logs.filter_log_events(logGroupName=GROUP, logStreamNamePrefix="a-1/")["events"]
    middle = whole[len(whole) // 2]["timestamp"]
    before = ran.logs.filter_log_events(logGroupName=GROUP, logStreamNamePrefix="a-1/", endTime=middle - 1)["events"]
    after = ran.logs.filter_log_events(logGroupName=GROUP, logStreamNamePrefix="a-1/", startTime=middle)["events"]
    assert [*before, *after] == whole


def test_follower_gets_every_line_once(ran: Cloud) -> None:
    """As `aws logs tail --follow` does: poll from the newest time, and recognise events by their ids."""
    script = "import time\nfor step in range(30):\n    print('step', step, flush=True)\n    time.sleep(0.02)\n"
    ran.start("followed", script)
    since, seen, messages = 0, set(), []
    while True:
        over = ran.describe("followed")["TrainingJobStatus"] == "Completed"
        pages = ran.logs.get_paginator("filter_log_events").paginate(
            logGroupName=GROUP, logStreamNamePrefix="followed/", startTime=since, interleaved=True
        )
        for event in (one for page in pages for one in page["events"]):
            since = max(since, event["timestamp"])
            if event["eventId"] not in seen:
                seen.add(event["eventId"])
                messages.append(event["message"])
        if over:
            break
    assert [one for one in messages if " step " in one] == [f"[algo-1:0] step {step}" for step in range(30)]


def place_token(text: bytes) -> str:
    return "f/" + base64.urlsafe_b64encode(zlib.compress(text)).decode()


@pytest.mark.parametrize("place", [-1, 3, 10**6, 10**30])
def test_token_inside_a_line_is_refused(ran: Cloud, place: int) -> None:
    stream = ran.logs.describe_log_streams(logGroupName=GROUP, logStreamNamePrefix="a-1/")["logStreams"][0]
    token = place_token(json.dumps({stream["logStreamName"]: place}).encode())
    with pytest.raises(ClientError, match=r"\(InvalidParameterException\).*nextToken is invalid"):
        ran.logs.filter_log_events(logGroupName=GROUP, nextToken=token)


@pytest.mark.parametrize(
    ("text", "message", "fits"),
    [
        ("can't", "it can't be", True),
        ("can't -won't", "it can't and won't be", False),
        ("it's \"don't go\"", "don't go, it's late", True),
        ('"say \\"no\\""', 'they say "no"', True),
        ('"-x"', "an -x", True),
        ('-"a b"', "a b", False),
        ("", "anything", True),
    ],
)
def test_pattern_matches_words_and_double_quoted_phrases(text: str, message: str, fits: bool) -> None:
    assert pattern(text)(message) == fits


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"logGroupName": "/aws/other"}, "ResourceNotFoundException"),
        ({"logGroupName": GROUP, "logStreamNames": ["unknown"]}, "ResourceNotFoundException"),
        ({"logGroupName": GROUP, "filterPattern": "{ $.a = 1 }"}, "InvalidParameterException"),
        ({"logGroupName": GROUP, "filterPattern": "%(%"}, "InvalidParameterException"),
        ({"logGroupName": GROUP, "filterPattern": '"open'}, "InvalidParameterException"),
        ({"logGroupName": GROUP, "filterPattern": 'a"b"'}, "InvalidParameterException"),
        ({"logGroupName": GROUP, "nextToken": "x"}, "InvalidParameterException"),
        ({"logGroupName": GROUP, "nextToken": place_token(b"[" * 100_000)}, "InvalidParameterException"),
    ],
    ids=range(8),
)
def test_invalid_filter_request_is_refused(ran: Cloud, request_: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as caught:
        ran.logs.filter_log_events(**request_)
    assert caught.value.response["Error"]["Code"] == code


def test_log_group_is_listed_with_its_streams(ran: Cloud) -> None:
    (group,) = ran.logs.describe_log_groups(logGroupNamePrefix="/aws/sagemaker")["logGroups"]
    assert group["logGroupName"] == GROUP
    assert ran.logs.describe_log_groups(logGroupNamePrefix="/aws/lambda")["logGroups"] == []
    streams = ran.logs.describe_log_streams(logGroupIdentifier=group["logGroupArn"], logStreamNamePrefix="a-1/")
    assert len(streams["logStreams"]) == 2


def test_describe_returns_last_value_of_each_metric(ran: Cloud) -> None:
    values = {one["MetricName"]: one["Value"] for one in ran.describe("a-1")["FinalMetricDataList"]}
    assert values == {"loss": 0.25, "rate": 0.001}
    assert "FinalMetricDataList" not in ran.describe("b-1")


def measured(*more: dict[str, str]) -> dict[str, Any]:
    algorithm = {"TrainingImage": "image", "TrainingInputMode": "File", "MetricDefinitions": [*METRICS, *more]}
    return {"AlgorithmSpecification": algorithm}


def test_final_metrics_do_not_need_the_logs(ran: Cloud) -> None:
    before = ran.run("measured", LOSSES, **measured())["FinalMetricDataList"]
    for stream in (ran.state_dir / "jobs/measured/logs").iterdir():
        stream.unlink()
    assert ran.describe("measured")["FinalMetricDataList"] == before


def test_endless_metric_expression_loses_only_its_own_metric(ran: Cloud) -> None:
    endless = {"Name": "endless", "Regex": "(a+)+$"}
    script = "print('loss=2', flush=True)\nprint('a' * 100 + '!', flush=True)\nprint('loss=1', flush=True)\n"
    answer = ran.run("endless", script, **measured(endless))
    assert answer["TrainingJobStatus"] == "Completed"
    assert {one["MetricName"]: one["Value"] for one in answer["FinalMetricDataList"]} == {"loss": 1.0}


def test_metrics_of_running_job_are_listed(ran: Cloud) -> None:
    cloudwatch = client_of(ran.endpoint, "cloudwatch")
    ran.start("running", "import time\nprint('loss=2', flush=True)\ntime.sleep(600)\n", **measured())
    dimensions = [{"Name": "TrainingJobName", "Value": "running"}]
    found = wait_for(lambda: cloudwatch.list_metrics(Dimensions=dimensions)["Metrics"], "the first value")
    assert [one["MetricName"] for one in found] == ["loss"]
    ran.sagemaker.stop_training_job(TrainingJobName="running")
    assert {one["Value"] for one in ran.wait("running")["FinalMetricDataList"]} == {2.0}


def test_metrics_are_listed_and_read(ran: Cloud) -> None:
    cloudwatch = client_of(ran.endpoint, "cloudwatch")
    wanted = {"Namespace": GROUP, "Dimensions": [{"Name": "TrainingJobName", "Value": "a-1"}]}
    assert {one["MetricName"] for one in cloudwatch.list_metrics(**wanted)["Metrics"]} == {"loss", "rate"}
    metric = {**wanted, "MetricName": "loss"}
    span = {"StartTime": ran.describe("a-1")["CreationTime"], "EndTime": datetime.now(timezone.utc)}
    for statistic, value in (("Maximum", 1.0), ("Minimum", 0.25), ("SampleCount", 8.0)):
        query = {"Id": "one", "MetricStat": {"Metric": metric, "Period": 86400, "Stat": statistic}}
        (result,) = cloudwatch.get_metric_data(MetricDataQueries=[query], **span)["MetricDataResults"]
        assert sum(result["Values"]) == value or statistic != "SampleCount"
        assert value in result["Values"] or statistic == "SampleCount"
        assert all(one.tzinfo is not None for one in result["Timestamps"])
    statistics = cloudwatch.get_metric_statistics(**metric, **span, Period=86400, Statistics=["Average", "Sum"])
    assert sum(one["Sum"] for one in statistics["Datapoints"]) == pytest.approx(2 * (1 + 0.5 + 0.333 + 0.25))
    assert cloudwatch.get_metric_data(MetricDataQueries=[], **span)["MetricDataResults"] == []


@pytest.mark.parametrize(("kind", "is_valid"), [("ml.p4d.24xlarge", True), ("ml.p3.24xlarge", False)])
def test_instance_types_of_model_and_catalogue_are_accepted(kind: str, is_valid: bool) -> None:
    shape = service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    found = list(violations(shape.members["ResourceConfig"], {"InstanceType": kind}))
    assert (found == []) == is_valid
    # As with an older model, which does not have the type.
    member = shape.members["ResourceConfig"].members["InstanceType"]
    known = member.metadata["enum"]
    try:
        member.metadata["enum"] = [one for one in known if one != kind]
        assert (list(violations(member, kind, "type")) == []) == is_valid
    finally:
        member.metadata["enum"] = known
