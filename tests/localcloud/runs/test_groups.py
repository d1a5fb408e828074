"""A job with several instance groups: its hosts, their files, and what its channels reach."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.jobs.hosts import LOOKS, seen
from tests.support.services.cloud import BUCKET, Cloud

GROUPS = [
    {"InstanceGroupName": "gpus", "InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2},
    {"InstanceGroupName": "data", "InstanceType": "ml.c5.18xlarge", "InstanceCount": 1},
]


def changes(cloud: Cloud, **more: Any) -> dict[str, Any]:
    """The parts of a request with the groups, of which the first trains."""
    values = cloud.request("any")["HyperParameters"]
    flags = {
        "sagemaker_distributed_dataparallel_enabled": "true",
        "sagemaker_distribution_instance_groups": '["gpus"]',
    }
    return {
        "ResourceConfig": {"VolumeSizeInGB": 30, "InstanceGroups": GROUPS},
        "HyperParameters": values | flags | more.pop("HyperParameters", {}),
        **more,
    }


def channel(name: str, *groups: str, sharded: bool = False) -> dict[str, Any]:
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": f"s3://{BUCKET}/rows",
        "S3DataDistributionType": "ShardedByS3Key" if sharded else "FullyReplicated",
        **({"InstanceGroupNames": list(groups)} if groups else {}),
    }
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}}


def with_script(cloud: Cloud, script: str, **more: Any) -> dict[str, Any]:
    submitted = cloud.request("any", script)["HyperParameters"]
    return changes(cloud, HyperParameters=submitted, **more)


def test_each_host_has_the_files_of_its_group(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket=BUCKET, Key="rows/a", Body=b"1")
    cloud.s3.put_object(Bucket=BUCKET, Key="rows/b", Body=b"22")
    inputs = [channel("all"), channel("rows", "data"), channel("shards", "gpus", sharded=True)]
    described = cloud.run("groups", LOOKS, **with_script(cloud, LOOKS, InputDataConfig=inputs))
    assert described["TrainingJobStatus"] == "Completed", described.get("FailureReason")
    assert described["ResourceConfig"] == {"VolumeSizeInGB": 30, "InstanceGroups": GROUPS}
    hosts = seen(cloud, "groups")
    config = {name: host["config"] for name, host in hosts.items()}
    groups = [
        {"instance_group_name": "gpus", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-1", "algo-2"]},
        {"instance_group_name": "data", "instance_type": "ml.c5.18xlarge", "hosts": ["algo-3"]},
    ]
    for name, group in (("algo-1", groups[0]), ("algo-2", groups[0]), ("algo-3", groups[1])):
        assert config[name]["resourceconfig"] == {
            "current_host": name,
            "current_instance_type": group["instance_type"],
            "current_group_name": group["instance_group_name"],
            "hosts": ["algo-1", "algo-2", "algo-3"],
            "instance_groups": groups,
            "network_interface_name": "lo",
        }
    assert {name: set(one["inputdataconfig"]) for name, one in config.items()} == {
        "algo-1": {"all", "shards"},
        "algo-2": {"all", "shards"},
        "algo-3": {"all", "rows"},
    }
    assert "WORLD_SIZE" not in hosts["algo-3"]["environ"]
    assert hosts["algo-2"]["environ"]["WORLD_SIZE"] == "2"


def test_channel_of_a_group_has_its_data_there_only(cloud: Cloud) -> None:
    cloud.s3.put_object(Bucket=BUCKET, Key="rows/a", Body=b"1")
    cloud.s3.put_object(Bucket=BUCKET, Key="rows/b", Body=b"22")
    script = """
    import os, pathlib
    folder = pathlib.Path(os.environ["SM_INPUT_DIR"]) / "data"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    print("found", os.environ["SM_CURRENT_HOST"], ",".join(files), flush=True)
    """
    inputs = [channel("rows", "data"), channel("shards", "gpus", sharded=True)]
    cloud.run("channels", script, **with_script(cloud, script, InputDataConfig=inputs))
    found = sorted(line.partition("found ")[2] for line in cloud.log("channels") if "found algo" in line)
    assert found == ["algo-1 shards/a", "algo-2 shards/b", "algo-3 rows/a,rows/b"]


@pytest.mark.parametrize(
    ("resources", "source", "message"),
    [
        ({"InstanceType": "ml.m5.large"}, {}, "InstanceType and InstanceGroups of ResourceConfig exclude each other"),
        ({"KeepAlivePeriodInSeconds": 60}, {}, "KeepAlivePeriodInSeconds is not supported for a heterogeneous cluster"),
        ({"InstanceGroups": [GROUPS[0], GROUPS[0]]}, {}, "have the same InstanceGroupName"),
        ({"InstanceGroups": [{**GROUPS[0], "InstanceCount": 0}]}, {}, "resourceConfig.instanceGroups.1.member"),
        ({"InstanceGroups": [{**GROUPS[0], "InstanceCount": 255}]}, {}, "more than 254 hosts"),
        ({}, {"InstanceGroupNames": ["date"]}, "has 'date', which is not one of the InstanceGroups"),
    ],
)
def test_groups_that_do_not_fit_are_refused(
    cloud: Cloud, resources: dict[str, Any], source: dict[str, Any], message: str
) -> None:
    request = cloud.request("refused", **changes(cloud, InputDataConfig=[channel("rows")]))
    request["ResourceConfig"] = request["ResourceConfig"] | resources
    request["InputDataConfig"][0]["DataSource"]["S3DataSource"].update(source)
    with pytest.raises(ClientError, match="ValidationException") as refused:
        cloud.sagemaker.create_training_job(**request)
    assert message in refused.value.response["Error"]["Message"]
