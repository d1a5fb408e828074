"""Endpoints end when they are deleted, and with the local cloud; a killed server loses none."""

from __future__ import annotations

import doctest
import os
import re
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from smdp_launch.localcloud.client import shared
from smdp_launch.localcloud.client.connect import private
from smdp_launch.localcloud.files import Lock
from smdp_launch.localcloud.layout import StateFolder
from tests.conftest import ROOT
from tests.localcloud.conftest import assert_nothing_runs, open_cloud_on
from tests.support.services.cloud import Cloud, is_running, kill, processes_with
from tests.support.services.serving import Serving
from tests.support.waiting import DEADLINE, wait_for


@pytest.mark.runs
def test_endpoint_of_private_cloud_ends_with_its_last_client(state_dir: Path) -> None:
    with ExitStack() as stack:
        serving = Serving(open_cloud_on(state_dir, stack))
        serving.deploy("private")
        assert shared.status(state_dir).running == ("endpoint/private",)
    assert_nothing_runs(str(state_dir))
    assert list((state_dir / "endpoints").iterdir()) == []
    assert list((state_dir / "endpoint-logs" / "us-east-1" / "private" / "AllTraffic").iterdir()) != []


def test_shared_cloud_keeps_endpoint_until_it_ends(state_dir: Path) -> None:
    endpoint = shared.up(state_dir, timeout=DEADLINE)
    serving = Serving(Cloud(endpoint))
    serving.cloud.s3.create_bucket(Bucket="bucket")
    serving.deploy("shared")
    assert serving.ask("shared")["is"] == [2, 4]
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/models/"}}
    serving.sagemaker.create_transform_job(
        TransformJobName="running",
        ModelName=serving.create_model("sleeping", "import time\ntime.sleep(600)\n"),
        TransformInput={"DataSource": source},
        TransformOutput={"S3OutputPath": "s3://bucket/out"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    assert shared.status(state_dir).running == ("endpoint/shared", "transform/running")
    assert shared.down(state_dir, grace=1) == ("endpoint/shared", "transform/running")
    assert_nothing_runs(str(state_dir))
    assert list((state_dir / "endpoints").iterdir()) == []
    with private(state_dir, timeout=DEADLINE) as again:
        client = Cloud(again).sagemaker
        assert client.list_endpoints()["Endpoints"] == []
        assert [one["ModelName"] for one in client.list_models()["Models"]] == ["sleeping", "shared"]
        described = client.describe_transform_job(TransformJobName="running")
        assert described["TransformJobStatus"] == "Stopped"


def test_endpoint_survives_a_killed_server(open_cloud: Callable[[], Cloud]) -> None:
    cloud = open_cloud()
    serving = Serving(cloud)
    serving.deploy("surviving")
    hosts = serving.hosts("surviving")
    kill(cloud.endpoint.pid)
    again = Serving(open_cloud())
    assert again.cloud.endpoint.url == cloud.endpoint.url
    assert again.hosts("surviving") == hosts
    assert again.ask("surviving")["is"] == [2, 4]
    again.delete("surviving")


@pytest.mark.runs
def test_endpoint_ends_when_server_and_clients_are_gone(state_dir: Path) -> None:
    """No other process can end it: the supervisor notices that itself."""
    with ExitStack() as stack:
        cloud = open_cloud_on(state_dir, stack)
        serving = Serving(cloud)
        serving.deploy("alone")
        supervisor = serving.supervisor("alone")
        os.kill(cloud.endpoint.pid, signal.SIGKILL)
        wait_for(lambda: not is_running(cloud.endpoint.pid), "the server's end")
    wait_for(lambda: not is_running(supervisor), "the supervisor's end")
    assert processes_with(str(state_dir)) == []
    with private(state_dir, timeout=DEADLINE) as again:
        client = Cloud(again).sagemaker
        wait_for(lambda: client.list_endpoints()["Endpoints"] == [], "the removal of the endpoint")


@pytest.mark.runs
def test_example_of_the_reference_runs() -> None:
    """In a local cloud of its own, which ends with its endpoint."""
    page = (ROOT / "docs" / "reference" / "local-endpoints.md").read_text()
    code = "".join(re.findall(r"^```python\n(>>> .*?)^```", page, re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(code, {}, "example", None, 0)
    assert test.examples
    output: list[str] = []
    doctest.DocTestRunner().run(test, out=output.append)
    assert "".join(output) == ""


def test_no_endpoint_is_created_while_the_cloud_ends(state_dir: Path) -> None:
    with private(state_dir, timeout=DEADLINE) as endpoint:
        serving = Serving(Cloud(endpoint))
        serving.cloud.s3.create_bucket(Bucket="bucket")
        serving.create_config("late", serving.create_model("late"))
        lock = Lock(StateFolder.at(state_dir).shutdown_lock)
        assert lock.take()
        try:
            with pytest.raises(ClientError, match="The local cloud is going down"):
                serving.sagemaker.create_endpoint(EndpointName="late", EndpointConfigName="late")
        finally:
            lock.release()
