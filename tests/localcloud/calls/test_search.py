"""Search and DeleteTrainingJob, and the fields of ended jobs, with real jobs."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.localcloud.conftest import open_cloud_on
from tests.support.services.cloud import BUCKET, Cloud, client_of
from tests.support.waiting import wait_for

LOSS = "print('loss=0.25', flush=True)"
METRICS = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
WAITS = "import time\nprint('waiting', flush=True)\ntime.sleep(600)"
CHANNELS = [
    {"ChannelName": name, "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{name}"}}}
    for name in ("train", "test")
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A cloud in which small and wide have completed, and broken has failed, in this order."""
    with ExitStack() as stack:
        cloud = open_cloud_on(tmp_path_factory.mktemp("search") / "state", stack)
        for one in ("train", "test"):
            cloud.s3.put_object(Bucket=BUCKET, Key=f"{one}/a", Body=b"x")
        algorithm = {"TrainingImage": "image", "TrainingInputMode": "File", "MetricDefinitions": METRICS}
        small = cloud.request(
            "small", LOSS, AlgorithmSpecification=algorithm, Tags=[{"Key": "team", "Value": "vision"}]
        )
        small["HyperParameters"]["epochs"] = "3"
        cloud.sagemaker.create_training_job(**small, InputDataConfig=CHANNELS)
        cloud.wait("small")
        resources = {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2, "VolumeSizeInGB": 30}
        cloud.run("wide", "print(1)", ResourceConfig={**resources, "KeepAlivePeriodInSeconds": 3600})
        cloud.run("broken", "raise SystemExit(3)", hosts=1)
        yield cloud


def found(cloud: Cloud, *filters: dict[str, str], **more: Any) -> list[str]:
    expression = {**({"Filters": list(filters)} if filters else {}), **more}
    answer = cloud.sagemaker.search(Resource="TrainingJob", SearchExpression=expression, SortBy="CreationTime")
    return [one["TrainingJob"]["TrainingJobName"] for one in answer["Results"]]


def where(name: str, operator: str, value: str | None = None) -> dict[str, str]:
    return {"Name": name, "Operator": operator, **({"Value": value} if value is not None else {})}


@pytest.mark.parametrize(
    ("one", "names"),
    [
        (where("TrainingJobStatus", "Equals", "Completed"), ["wide", "small"]),
        (where("TrainingJobStatus", "NotEquals", "Completed"), ["broken"]),
        (where("TrainingJobName", "Contains", "WID"), ["wide"]),
        (where("TrainingJobName", "In", "wide, broken"), ["broken", "wide"]),
        (where("ResourceConfig.InstanceCount", "GreaterThan", "1"), ["wide"]),
        (where("ResourceConfig.InstanceCount", "LessThanOrEqualTo", "1"), ["broken", "small"]),
        (where("HyperParameters.epochs", "Equals", "3"), ["small"]),
        (where("HyperParameters.epochs", "GreaterThanOrEqualTo", "2.5"), ["small"]),
        (where("Metrics.loss", "LessThan", "0.3"), ["small"]),
        (where("Tags.team", "Equals", "vision"), ["small"]),
        (where("Tags.team", "Exists"), ["small"]),
        (where("FailureReason", "NotExists"), ["wide", "small"]),
        (where("EnableNetworkIsolation", "Equals", "False"), ["broken", "wide", "small"]),
        (where("InputDataConfig.ChannelName", "Equals", "test"), ["small"]),
    ],
    ids=lambda one: f"{one['Name']}-{one['Operator']}" if isinstance(one, dict) else "",
)
def test_search_finds_jobs_by_a_filter(ran: Cloud, one: dict[str, str], names: list[str]) -> None:
    assert found(ran, one) == names


def test_search_finds_jobs_by_time(ran: Cloud) -> None:
    created = ran.describe("wide")["CreationTime"]
    before = where("CreationTime", "LessThan", created.isoformat())
    after = where("CreationTime", "GreaterThanOrEqualTo", (created - timedelta(microseconds=1000)).isoformat())
    assert (found(ran, before), found(ran, after)) == (["small"], ["broken", "wide"])


def test_search_combines_expressions(ran: Cloud) -> None:
    failed, tagged = where("TrainingJobStatus", "Equals", "Failed"), where("Tags.team", "Equals", "vision")
    assert found(ran, failed, tagged) == []
    assert found(ran, failed, tagged, Operator="Or") == ["broken", "small"]
    either = {"Filters": [failed, tagged], "Operator": "Or"}
    assert found(ran, SubExpressions=[either, {"Filters": [tagged]}]) == ["small"]


def test_nested_filters_must_match_the_same_entry(ran: Cloud) -> None:
    def both(name: str, key: str) -> dict[str, Any]:
        uri = "InputDataConfig.DataSource.S3DataSource.S3Uri"
        filters = [where("InputDataConfig.ChannelName", "Equals", name), where(uri, "Contains", key)]
        return {"NestedPropertyName": "InputDataConfig", "Filters": filters}

    assert found(ran, NestedFilters=[both("train", "/train")]) == ["small"]
    assert found(ran, NestedFilters=[both("train", "/test")]) == []


def test_search_sorts_and_pages(ran: Cloud) -> None:
    pages = ran.sagemaker.get_paginator("search").paginate(
        Resource="TrainingJob", SortBy="TrainingJobName", SortOrder="Ascending", PaginationConfig={"PageSize": 2}
    )
    names = [[one["TrainingJob"]["TrainingJobName"] for one in page["Results"]] for page in pages]
    assert names == [["broken", "small"], ["wide"]]
    answer = ran.sagemaker.search(Resource="TrainingJob", MaxResults=1)
    assert answer["TotalHits"] == {"Value": 3, "Relation": "EqualTo"}
    assert answer["Results"][0]["TrainingJob"]["TrainingJobName"] == "broken"  # the last that was changed


def test_search_record_has_fields_of_describe_and_tags(ran: Cloud) -> None:
    answer = ran.sagemaker.search(
        Resource="TrainingJob", SearchExpression={"Filters": [where("TrainingJobName", "Equals", "small")]}
    )
    record, described = answer["Results"][0]["TrainingJob"], ran.describe("small")
    assert record.pop("Tags") == [{"Key": "team", "Value": "vision"}]
    assert record == {name: described[name] for name in record}
    assert {"ModelArtifacts", "FinalMetricDataList", "ResourceConfig"} <= record.keys()


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (where("TrainingJobName", "Exists", "x"), "Value must not be specified"),
        (where("TrainingJobName", "Equals"), "Value must be specified"),
        (where("ResourceConfig.InstanceCount", "GreaterThan", "many"), "is not a number"),
        (where("CreationTime", "GreaterThan", "soon"), "is not a time"),
    ],
)
def test_invalid_search_filter_is_refused(ran: Cloud, one: dict[str, str], message: str) -> None:
    with pytest.raises(ClientError, match="ValidationException") as caught:
        found(ran, one)
    assert message in caught.value.response["Error"]["Message"]


def test_warm_pool_has_only_a_status(ran: Cloud) -> None:
    assert ran.describe("wide")["WarmPoolStatus"] == {"Status": "Available"}
    assert "WarmPoolStatus" not in ran.describe("small")
    listed = ran.sagemaker.list_training_jobs(WarmPoolStatusEquals="Available")["TrainingJobSummaries"]
    assert [(one["TrainingJobName"], one["WarmPoolStatus"]) for one in listed] == [("wide", {"Status": "Available"})]
    with pytest.raises(ClientError, match=r"\(ResourceInUse\).*warm pool"):
        ran.sagemaker.delete_training_job(TrainingJobName="wide")
    ran.sagemaker.update_training_job(TrainingJobName="wide", ResourceConfig={"KeepAlivePeriodInSeconds": 1})
    ended = wait_for(lambda: ran.describe("wide")["WarmPoolStatus"]["Status"] == "Terminated", "the end of the pool")
    assert ended
    assert ran.describe("wide")["WarmPoolStatus"]["ResourceRetainedBillableTimeInSeconds"] == 1
    ran.sagemaker.update_training_job(TrainingJobName="wide", ResourceConfig={"KeepAlivePeriodInSeconds": 3600})


def test_name_of_deleted_job_can_be_used_again(ran: Cloud) -> None:
    ran.start("gone", WAITS)
    assert ran.describe("gone")["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{BUCKET}/out/gone/output/model.tar.gz"
    with pytest.raises(ClientError, match=r"\(ResourceInUse\)"):
        ran.sagemaker.delete_training_job(TrainingJobName="gone")
    ran.sagemaker.stop_training_job(TrainingJobName="gone")
    ran.wait("gone")
    ran.sagemaker.delete_training_job(TrainingJobName="gone")
    with pytest.raises(ClientError, match="Requested resource not found"):
        ran.describe("gone")
    assert not (ran.state_dir / "jobs/gone").exists()
    assert list((ran.state_dir / "jobs").glob(".*")) == []
    assert ran.run("gone", "print('again')")["TrainingJobStatus"] == "Completed"
    ran.sagemaker.delete_training_job(TrainingJobName="gone")


def test_tags_that_break_the_service_rules_are_refused(ran: Cloud) -> None:
    arn = ran.describe("broken")["TrainingJobArn"]
    twice = [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]
    with pytest.raises(ClientError, match=r"\(ValidationException\).*Duplicate tag key"):
        ran.sagemaker.add_tags(ResourceArn=arn, Tags=twice)
    many = [{"Key": f"key-{number}", "Value": "x"} for number in range(50)]
    ran.sagemaker.add_tags(ResourceArn=arn, Tags=many)
    with pytest.raises(ClientError, match=r"\(ResourceLimitExceeded\)"):
        ran.sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "one-more", "Value": "x"}])
    assert len(ran.sagemaker.list_tags(ResourceArn=arn)["Tags"]) == 50


def test_calls_ignore_jobs_that_are_deleted_meanwhile(ran: Cloud) -> None:
    names = [f"copy-{number}" for number in range(40)]
    for name in names:
        shutil.copytree(ran.state_dir / "jobs" / "small", ran.state_dir / "jobs" / name)
    group = {"logGroupName": "/aws/sagemaker/TrainingJobs"}
    codes: Counter[str] = Counter()
    over = threading.Event()

    def refused(call: Callable[..., object], **parameters: Any) -> None:
        try:
            call(**parameters)
        except ClientError as error:
            codes[error.response["Error"]["Code"]] += 1

    def delete() -> None:
        sagemaker = client_of(ran.endpoint, "sagemaker")
        for name in names:
            refused(sagemaker.delete_training_job, TrainingJobName=name)

    def read() -> None:
        sagemaker, logs = client_of(ran.endpoint, "sagemaker"), client_of(ran.endpoint, "logs")
        while not over.is_set():
            refused(sagemaker.list_training_jobs, MaxResults=100)
            refused(sagemaker.search, Resource="TrainingJob")
            refused(logs.describe_log_groups)
            refused(logs.describe_log_streams, **group)
            refused(logs.filter_log_events, **group)

    with ThreadPoolExecutor(6) as threads:
        for _ in range(3):
            threads.submit(read)
        deleted = [threads.submit(delete) for _ in range(3)]
        wait(deleted)
        over.set()
    assert not any((ran.state_dir / "jobs" / name).exists() for name in names)
    # Each job is deleted once: the others' requests for it find none.
    assert set(codes) <= {"ResourceNotFound", "ValidationException"}, codes


def test_order_filter_on_structure_matches_nothing(ran: Cloud) -> None:
    assert found(ran, where("ResourceConfig", "GreaterThan", "3")) == []
