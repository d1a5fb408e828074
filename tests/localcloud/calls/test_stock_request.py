"""A request of SageMaker's own SDK runs unchanged."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.services.cloud import Cloud

# What `PyTorch(entry_point="train.py", source_dir="src", instance_count=2, instance_type="ml.p4d.24xlarge",
# image_uri=..., distribution={"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": ...}}},
# hyperparameters=..., environment=..., metric_definitions=..., checkpoint_s3_uri=...).fit({"train": ...})` of version
# 2.257.7 passed to the service's client, with the clients replaced; the request itself is not edited.
REQUEST = ROOT / "tests/localcloud/requests/sagemaker-2.257.7-pytorch.json"
SCRIPT = """\
import json, os, sys
import torch
import torch.distributed as dist

dist.init_process_group("smddp")
rank = dist.get_rank()
total = torch.tensor([float(rank + 1)])
dist.all_reduce(total)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.ones(2, 4)).sum().backward()
with open(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "part.txt")) as file:
    data = file.read()
names = ["SM_HOSTS", "SM_NUM_GPUS", "SM_FRAMEWORK_PARAMS", "GREETING", "NCCL_DEBUG", "SAGEMAKER_INSTANCE_TYPE"]
found = {name: os.environ[name] for name in names}
print("found", json.dumps({"arguments": sys.argv[1:], "sum": total.item(), "data": data, **found}), flush=True)
if rank == 0:
    torch.save(model.module.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
dist.destroy_process_group()
"""


def archive(script: str) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        info = tarfile.TarInfo("train.py")
        info.size = len(script.encode())
        tar.addfile(info, io.BytesIO(script.encode()))
    return content.getvalue()


def found_by(cloud: Cloud, job: str) -> dict[str, dict[str, Any]]:
    lines = (line.partition("found ") for line in cloud.log(job) if "found {" in line)
    return {head.strip("[] "): json.loads(text) for head, _, text in lines}


@pytest.mark.runs
@pytest.mark.torch
def test_request_of_stock_estimator_runs_unchanged(cloud: Cloud) -> None:
    request = json.loads(REQUEST.read_text())
    cloud.s3.create_bucket(Bucket="sagemaker-us-east-1-123456789012")
    location = json.loads(request["HyperParameters"]["sagemaker_submit_directory"])
    bucket, _, key = location.removeprefix("s3://").partition("/")
    cloud.s3.put_object(Bucket=bucket, Key=key, Body=archive(SCRIPT))
    cloud.s3.put_object(Bucket="bucket", Key="train/part.txt", Body=b"digits")
    cloud.sagemaker.create_training_job(**request)
    job = cloud.wait(request["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    found = found_by(cloud, request["TrainingJobName"])
    assert sorted(found) == ["algo-1:0", "algo-2:1"]
    arguments = ["--epochs", "2", "--layers", "[1, 2]", "--lr", "0.1", "--map", "a=1", "--name", "a b", "--nothing", ""]
    for one in found.values():
        assert one["arguments"] == [*arguments, "--on", "True"]
        assert (one["sum"], one["data"]) == (3.0, "digits")
        assert (one["GREETING"], one["NCCL_DEBUG"]) == ("hello", "VERSION")
        assert json.loads(one["SM_HOSTS"]) == ["algo-1", "algo-2"]
        assert one["SAGEMAKER_INSTANCE_TYPE"] == "ml.p4d.24xlarge"
        assert json.loads(one["SM_FRAMEWORK_PARAMS"])["sagemaker_distributed_dataparallel_enabled"] is True
    described = cloud.describe(request["TrainingJobName"])
    assert {name: described[name] for name in ("HyperParameters", "ResourceConfig", "CheckpointConfig")} == {
        name: request[name] for name in ("HyperParameters", "ResourceConfig", "CheckpointConfig")
    }


def isolated(cloud: Cloud, name: str, script: str, distribution: str) -> dict[str, Any]:
    """Run a job whose containers have no network. Its archive is a channel with the given distribution."""
    key = f"out/{name}/source/sourcedir.tar.gz"
    cloud.s3.put_object(Bucket="bucket", Key=key, Body=archive(script))
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/{key}", "S3DataDistributionType": distribution}
    return cloud.run(
        name,
        "",
        hosts=2,
        EnableNetworkIsolation=True,
        InputDataConfig=[{"ChannelName": "code", "DataSource": {"S3DataSource": source}, "InputMode": "File"}],
        HyperParameters={
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": '"/opt/ml/input/data/code/sourcedir.tar.gz"',
        },
    )


def test_containers_without_a_network_get_their_source_as_a_channel(either_cloud: Cloud) -> None:
    script = """\
import json, os
from tests.conftest import ROOT
print("found", json.dumps({"aws": sorted(name for name in os.environ if name.startswith("AWS_"))}), flush=True)
"""
    job = isolated(either_cloud, "isolated", script, "FullyReplicated")
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert job["EnableNetworkIsolation"] is True
    assert found_by(either_cloud, "isolated") == {
        f"algo-{number}:{number - 1}": {"aws": ["AWS_DEFAULT_REGION", "AWS_REGION"]} for number in (1, 2)
    }


def test_host_that_fails_before_its_workers_gives_the_failure_reason(either_cloud: Cloud) -> None:
    """The archive reaches the first host only, which trains until the other host's failure ends it."""
    job = isolated(either_cloud, "unprepared", "import time; time.sleep(60)", "ShardedByS3Key")
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("AlgorithmError: The source "), job["FailureReason"]
    assert "input/data/code/sourcedir.tar.gz" in job["FailureReason"]
    assert "(on algo-2)" in job["FailureReason"]
    lines = either_cloud.log("unprepared")
    assert [line for line in lines if "[algo-1] " in line and "the job's first failure: The source" in line]
    assert [line for line in lines if '"event": "host_failed"' in line and '"host": "algo-2"' in line]
