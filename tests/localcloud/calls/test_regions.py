"""A job belongs to the region for which its request was signed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.conftest import ROOT
from tests.support.services.cloud import Cloud, client_of

GROUP = "/aws/sagemaker/TrainingJobs"
#: Metrics of a host, which exist if the job ran for long enough.
OF_HOSTS = {"CPUUtilization", "MemoryUtilization", "DiskUtilization", "GPUUtilization", "GPUMemoryUtilization"}
SCRIPT = """\
import os
print("found", os.environ["AWS_REGION"], os.environ["AWS_DEFAULT_REGION"], os.environ["TRAINING_JOB_ARN"], flush=True)
print("loss=1.5", flush=True)
"""
ARN = "arn:aws:sagemaker:eu-west-1:000000000000:training-job/abroad"


def there(cloud: Cloud, service: str) -> Any:
    return client_of(cloud.endpoint, service, region_name="eu-west-1")


@pytest.fixture(scope="module")
def abroad(shared_cloud: Cloud) -> Cloud:
    """A cloud with a job in eu-west-1, and an older job without a recorded region."""
    algorithm = {
        "TrainingImage": "image",
        "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    }
    request = shared_cloud.request("abroad", SCRIPT, AlgorithmSpecification=algorithm)
    created = there(shared_cloud, "sagemaker").create_training_job(**request)
    assert created["TrainingJobArn"] == ARN
    shared_cloud.run("home", "print(1)")
    (shared_cloud.state_dir / "jobs/home/place.json").unlink()
    there(shared_cloud, "sagemaker").get_waiter("training_job_completed_or_stopped").wait(
        TrainingJobName="abroad", WaiterConfig={"Delay": 1, "MaxAttempts": 250}
    )
    return shared_cloud


def test_job_is_found_only_in_its_region(abroad: Cloud) -> None:
    names = {
        region: [one["TrainingJobName"] for one in client.list_training_jobs()["TrainingJobSummaries"]]
        for region, client in (("eu", there(abroad, "sagemaker")), ("us", abroad.sagemaker))
    }
    assert names == {"eu": ["abroad"], "us": ["home"]}
    assert there(abroad, "sagemaker").describe_training_job(TrainingJobName="abroad")["TrainingJobArn"] == ARN
    calls = ("describe_training_job", "stop_training_job", "delete_training_job")
    for call in calls:
        with pytest.raises(ClientError, match="Requested resource not found"):
            getattr(abroad.sagemaker, call)(TrainingJobName="abroad")
    with pytest.raises(ClientError, match="Requested resource not found"):
        abroad.sagemaker.list_tags(ResourceArn=ARN)
    assert there(abroad, "sagemaker").list_tags(ResourceArn=ARN)["Tags"] == []
    assert abroad.describe("home")["TrainingJobArn"].startswith("arn:aws:sagemaker:us-east-1:")


def test_logs_and_metrics_are_in_the_region_of_the_job(abroad: Cloud) -> None:
    found = there(abroad, "logs").describe_log_streams(logGroupName=GROUP)["logStreams"]
    assert [one["logStreamName"].partition("/")[0] for one in found] == ["abroad"]
    assert found[0]["arn"].startswith(f"arn:aws:logs:eu-west-1:000000000000:log-group:{GROUP}:log-stream:abroad/")
    assert there(abroad, "logs").describe_log_groups()["logGroups"][0]["arn"].startswith("arn:aws:logs:eu-west-1:")
    at_home = abroad.logs.describe_log_streams(logGroupName=GROUP)["logStreams"]
    assert [one["logStreamName"].partition("/")[0] for one in at_home] == ["home"]
    metrics = there(abroad, "cloudwatch").list_metrics()["Metrics"]
    assert [one["MetricName"] for one in metrics if one["MetricName"] not in OF_HOSTS] == ["loss"]
    assert jobs_of(metrics) == {"abroad"}
    metrics = client_of(abroad.endpoint, "cloudwatch").list_metrics()["Metrics"]
    assert [one["MetricName"] for one in metrics if one["MetricName"] not in OF_HOSTS] == []
    assert jobs_of(metrics) <= {"home"}


def jobs_of(metrics: list[Any]) -> set[str]:
    """The jobs in the dimensions: the name of a job, or of a host as ``JOB/algo-1``."""
    return {one["Value"].partition("/")[0] for metric in metrics for one in metric["Dimensions"]}


def test_script_gets_the_region_of_the_job(abroad: Cloud) -> None:
    (line,) = [one for one in abroad.log("abroad") if "found" in one]
    assert line.partition("found ")[2].split() == ["eu-west-1", "eu-west-1", ARN]


def test_name_in_use_is_refused_in_all_regions(abroad: Cloud) -> None:
    with pytest.raises(ClientError) as caught:
        abroad.sagemaker.create_training_job(**abroad.request("abroad"))
    error = caught.value.response["Error"]
    assert error["Code"] == "ResourceInUse"
    assert error["Message"].endswith("The local cloud keeps names unique in all regions: eu-west-1 has the job.")
    with pytest.raises(ClientError) as caught:
        there(abroad, "sagemaker").create_training_job(**abroad.request("abroad"))
    assert caught.value.response["Error"]["Message"] == (
        "Training job names must be unique within an AWS account and region."
    )


def test_search_finds_only_jobs_of_the_region(abroad: Cloud) -> None:
    answer = there(abroad, "sagemaker").search(Resource="TrainingJob")
    assert [one["TrainingJob"]["TrainingJobArn"] for one in answer["Results"]] == [ARN]


def test_region_without_the_instance_type_refuses_the_job(abroad: Cloud) -> None:
    offerings = json.loads((ROOT / "smdp_launch/catalog/dated/regions.json").read_text())
    row = next(one for one in offerings["offerings"] if not one["offered"] and one["certain"])
    client = client_of(abroad.endpoint, "sagemaker", region_name=row["regions"][0])
    resources = {"InstanceType": row["instance_type"], "InstanceCount": 1, "VolumeSizeInGB": 30}
    with pytest.raises(ClientError, match=r"\(ResourceLimitExceeded\).*is not available in this region"):
        client.create_training_job(**abroad.request("refused", ResourceConfig=resources))
