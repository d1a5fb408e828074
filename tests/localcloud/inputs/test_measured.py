"""CloudWatch's metrics of hosts and of FSx file systems, from what hosts report and read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.isolation import needs_fuse, needs_namespaces
from tests.support.services.cloud import Cloud, client_of

FSX = "fs-0123456789abcdef0"
GROUP = "/aws/sagemaker/TrainingJobs"
RESOURCES = {
    "smdp_event": 1,
    "event": "resources",
    "time": 0,
    "host": "algo-1",
    "window": 5.0,
    "cores": 8,
    "cpu_s": 30.0,
    "workers_cpu_s": 12.5,
    "workers_memory": 2_000_000_000,
    "memory_total": 8_000_000_000,
    "gpus": 2,
    "gpu_use": 0.75,
    "gpu_memory_used": 20,
    "gpu_memory_total": 80,
    "disk_read": 7,
    "channel_train_bytes": 5,
}


def span() -> dict[str, Any]:
    now = datetime.now(timezone.utc)
    return {"StartTime": now - timedelta(hours=1), "EndTime": now + timedelta(hours=1)}


def printing(*lines: str) -> dict[str, Any]:
    """A job whose process 1 writes these lines, as the entrypoint does."""
    program = "import json; print(*json.load(open('/opt/ml/input/config/hyperparameters.json')).values(), sep=chr(10))"
    algorithm = {
        "TrainingImage": "image",
        "TrainingInputMode": "File",
        "ContainerEntrypoint": ["python3", "-c", program],
    }
    return {
        "AlgorithmSpecification": algorithm,
        "HyperParameters": {str(index): line for index, line in enumerate(lines)},
    }


@needs_namespaces
def test_use_of_a_host_is_read_from_its_own_events(cloud: Cloud) -> None:
    cloudwatch = client_of(cloud.endpoint, "cloudwatch")
    by_worker = json.dumps(RESOURCES | {"workers_cpu_s": 500})
    without_gpus = {name: one for name, one in RESOURCES.items() if not name.startswith("gpu")}
    lines = (
        f"[algo-1] {json.dumps(RESOURCES)}",
        f"[algo-1] {json.dumps(without_gpus | {'workers_cpu_s': 2.5, 'workers_memory': 'much'})}",
        f"[algo-1:0] {by_worker}",
        f"[algo-1] {json.dumps(RESOURCES | {'window': 0})[:-1]}",
        '[algo-1] {"smdp_event": 1, "event": "resources", "window": "inf"}',
    )
    job = cloud.run("measured", "", **printing(*lines))
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    dimensions = [{"Name": "Host", "Value": "measured/algo-1"}]
    listed = cloudwatch.list_metrics(Namespace=GROUP, Dimensions=dimensions)["Metrics"]
    names = ("CPUUtilization", "MemoryUtilization", "GPUUtilization", "GPUMemoryUtilization")
    assert {one["MetricName"] for one in listed} == set(names)
    expected = {
        "CPUUtilization": [150.0, 250.0, 50.0],
        "MemoryUtilization": [25.0, 25.0, 25.0],
        "GPUUtilization": [150.0, 150.0, 150.0],
        "GPUMemoryUtilization": [50.0, 50.0, 50.0],
    }
    for name, (average, most, least) in expected.items():
        metric = {"Namespace": GROUP, "MetricName": name, "Dimensions": dimensions}
        wanted = {"Period": 86400, "Statistics": ["Average", "Maximum", "Minimum"]}
        (point,) = cloudwatch.get_metric_statistics(**metric, **span(), **wanted)["Datapoints"]
        assert (point["Average"], point["Maximum"], point["Minimum"]) == (average, most, least)
        assert point["Unit"] == "Percent"
        query = {"Id": "one", "MetricStat": {"Metric": metric, "Period": 86400, "Stat": "Maximum"}}
        (result,) = cloudwatch.get_metric_data(MetricDataQueries=[query], **span())["MetricDataResults"]
        assert result["Values"] == [most]


@pytest.mark.parametrize("value", ["measured/algo-9", "unknown/algo-1", "", "/", "../x/algo-1"])
def test_unknown_host_has_no_values(cloud: Cloud, value: str) -> None:
    cloudwatch = client_of(cloud.endpoint, "cloudwatch")
    metric = {
        "Namespace": GROUP,
        "MetricName": "CPUUtilization",
        "Dimensions": [{"Name": "Host", "Value": value or "-"}],
    }
    assert cloudwatch.get_metric_statistics(**metric, **span(), Period=60, Statistics=["Sum"])["Datapoints"] == []


@pytest.fixture
def lustre(cloud: Cloud, tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "lustre/images").mkdir(parents=True)
    (tmp_path / "lustre/images/one").write_bytes(bytes(3_000_000))
    account = cloud.state_dir / "account.yaml"
    account.write_text(f"fsx: {{{FSX}: {{mount_name: abcd1234, folder: {tmp_path}/lustre}}}}\n")
    yield tmp_path / "lustre"
    account.unlink()


@needs_fuse
@pytest.mark.usefixtures("lustre")
def test_bytes_that_hosts_read_from_fsx_are_counted(cloud: Cloud) -> None:
    cloudwatch = client_of(cloud.endpoint, "cloudwatch")
    source = {
        "FileSystemId": FSX,
        "FileSystemType": "FSxLustre",
        "DirectoryPath": "/abcd1234/images",
        "FileSystemAccessMode": "ro",
    }
    inputs = [{"ChannelName": "train", "DataSource": {"FileSystemDataSource": source}}]
    script = 'import os; open(os.environ["SM_CHANNEL_TRAIN"] + "/one", "rb").read()'
    job = cloud.run("lustre", script, hosts=2, InputDataConfig=inputs)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    dimensions = [{"Name": "FileSystemId", "Value": FSX}]
    listed = cloudwatch.list_metrics(Namespace="AWS/FSx", Dimensions=dimensions)["Metrics"]
    assert {one["MetricName"] for one in listed} == {"DataReadBytes", "DataReadOperations"}

    def total(name: str) -> tuple[float, str]:
        metric = {"Namespace": "AWS/FSx", "MetricName": name, "Dimensions": dimensions}
        points = cloudwatch.get_metric_statistics(**metric, **span(), Period=60, Statistics=["Sum"])["Datapoints"]
        return sum(one["Sum"] for one in points), points[0]["Unit"]

    assert total("DataReadBytes") == (6_000_000, "Bytes")
    operations, unit = total("DataReadOperations")
    assert operations >= 2 * 3
    assert unit == "Count"
