"""InvokeEndpointAsync: inputs from S3 or the body, answers and errors in S3."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from smdp_launch.localcloud.layout import EndpointFolder
from smdp_launch.localcloud.runtime.serving.async_requests import AsyncRequests
from tests.localcloud.conftest import assert_nothing_runs, open_cloud_on
from tests.support.services.cloud import BUCKET, Cloud, kill
from tests.support.services.serving import Serving, container
from tests.support.small_disk import SmallDisk, mounted
from tests.support.waiting import wait_for

SCRIPT = """
def model_fn(model_dir):
    return 2

def predict_fn(data, model):
    if data == "bad":
        raise ValueError("bad data")
    return [model * one for one in data]
"""


def deploy(serving: Serving, name: str, **output: str) -> str:
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": serving.create_model(name, SCRIPT),
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
    }
    config = {
        "OutputConfig": {"S3OutputPath": f"s3://{BUCKET}/answers/", **output},
        "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 2},
    }
    serving.sagemaker.create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=[variant], AsyncInferenceConfig=config
    )
    serving.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    assert serving.wait(name)["EndpointStatus"] == "InService"
    return name


@pytest.fixture(scope="module")
def endpoint(serving: Serving) -> str:
    return deploy(serving, "asynchronous", S3FailurePath=f"s3://{BUCKET}/errors")


def put(serving: Serving, key: str, body: bytes) -> str:
    serving.cloud.s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    return f"s3://{BUCKET}/{key}"


def object_at(serving: Serving, address: str) -> bytes:
    """The object, once it exists."""
    key = address.removeprefix(f"s3://{BUCKET}/")
    wait_for(lambda: key in serving.cloud.keys(key), f"the object {key}")
    return serving.cloud.object(key)


def ask(serving: Serving, endpoint: str, **request: Any) -> dict[str, Any]:
    sent = {"EndpointName": endpoint, "ContentType": "application/json", **request}
    answer: dict[str, Any] = serving.runtime.invoke_endpoint_async(**sent)
    return answer


def test_answer_of_an_object_is_written_to_s3(serving: Serving, endpoint: str) -> None:
    answers = [
        ask(serving, endpoint, InputLocation=put(serving, f"in/{number}.json", f"[{number}]".encode()))
        for number in range(8)
    ]
    assert all(one["ResponseMetadata"]["HTTPStatusCode"] == 202 and one["InferenceId"] for one in answers)
    assert all(one["OutputLocation"].startswith(f"s3://{BUCKET}/answers/") for one in answers)
    found = [object_at(serving, one["OutputLocation"]) for one in answers]
    assert found == [f"[{2 * number}]".encode() for number in range(8)]
    key = answers[0]["OutputLocation"].removeprefix(f"s3://{BUCKET}/")
    assert serving.cloud.s3.head_object(Bucket=BUCKET, Key=key)["ContentType"] == "application/json"
    folder = serving.cloud.state_dir / "endpoints" / endpoint / "requests"
    wait_for(lambda: list(folder.iterdir()) == [], "the end of the requests")
    described = serving.describe(endpoint)["AsyncInferenceConfig"]
    assert described["OutputConfig"]["S3OutputPath"] == f"s3://{BUCKET}/answers/"


def test_input_may_be_the_body(serving: Serving, endpoint: str) -> None:
    request: dict[str, Any] = {"InferenceId": "mine"}
    try:
        answer = ask(serving, endpoint, Body=b"[4]", **request)
    except Exception as error:
        if "Unknown parameter" not in str(error) and "Missing required" not in str(error):
            raise
        pytest.skip("this botocore has no Body of InvokeEndpointAsync")
    assert answer["InferenceId"] == "mine"
    assert object_at(serving, answer["OutputLocation"]) == b"[8]"


def test_errors_of_model_and_input_are_written_to_s3(serving: Serving, endpoint: str) -> None:
    bad = ask(serving, endpoint, InputLocation=put(serving, "in/bad.json", b'"bad"'))
    absent = ask(serving, endpoint, InputLocation=f"s3://{BUCKET}/in/absent.json")
    assert bad["FailureLocation"].startswith(f"s3://{BUCKET}/errors/")
    message = object_at(serving, bad["FailureLocation"]).decode()
    assert message.startswith("Received server error (500) from primary with message ")
    assert "ValueError: bad data" in message
    assert object_at(serving, absent["FailureLocation"]).startswith(b"The input cannot be read: NoSuchKey")


@pytest.mark.runs
def test_request_waits_for_a_healthy_host(serving: Serving, endpoint: str) -> None:
    kill(container(serving.hosts(endpoint)[0]["address"]))
    answer = ask(serving, endpoint, InputLocation=put(serving, "in/wait.json", b"[5]"))
    assert object_at(serving, answer["OutputLocation"]) == b"[10]"


def test_real_time_request_is_refused(serving: Serving, endpoint: str) -> None:
    assert "use InvokeEndpointAsync" in serving.error(endpoint)["Error"]["Message"]


@pytest.mark.runs
def test_endpoint_without_configuration_is_refused(serving: Serving, doubling: str) -> None:
    with pytest.raises(ClientError, match="is not an asynchronous inference endpoint"):
        ask(serving, doubling, InputLocation=f"s3://{BUCKET}/in/0.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"InputLocation": "https://example.com/x"}, "must be the S3 address of an object"),
        ({"InputLocation": "s3://bucket"}, "must be the S3 address of an object"),
    ],
)
def test_malformed_request_is_refused(serving: Serving, endpoint: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ClientError, match=message):
        ask(serving, endpoint, **changes)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk") as made:
        yield made


@pytest.fixture
def small_cloud(disk: SmallDisk) -> Iterator[Cloud]:
    """A local cloud whose state lies on the small disk."""
    state = disk.folder / "state"
    with ExitStack() as stack:
        yield open_cloud_on(state, stack)
    assert_nothing_runs(str(state))


@contextmanager
def full_at_answer(disk: SmallDisk) -> Iterator[list[dict[str, Any]]]:
    """The variants of an endpoint whose container fills the disk before it answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            disk.fill()
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"prediction")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        host = {"instance": "i-1", "address": "127.0.0.1", "port": server.server_port, "token": "token"}
        try:
            yield [{"name": "AllTraffic", "hosts": [host]}]
        finally:
            server.shutdown()
            thread.join()


def waiting(cloud: Cloud, **changes: Any) -> EndpointFolder:
    """An endpoint's folder with one request."""
    folder = EndpointFolder(cloud.state_dir / "endpoints/full")
    folder.requests.mkdir(parents=True)
    model = {"ExecutionRoleArn": "arn:aws:iam::000000000000:role/serving"}
    folder.deployment.write_text(json.dumps({"variants": [{"VariantName": "AllTraffic", "Model": model}]}))
    request = {
        "id": "one",
        "variant": "AllTraffic",
        "input": "",
        "body": "aGk=",
        "headers": {},
        "timeout": 60,
        "expires": time.time() + 3600,
        "output": f"s3://{BUCKET}/one.out",
        "failure": f"s3://{BUCKET}/one-error.out",
    }
    path = folder.requests / "1.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({**request, **changes}))
    return folder


def test_answer_on_a_full_disk_is_stored_once_there_is_space(
    small_cloud: Cloud, disk: SmallDisk, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = waiting(small_cloud)
    requests = AsyncRequests(folder)
    printed = ""

    def reports_the_error() -> bool:
        nonlocal printed
        printed += capfd.readouterr().err
        return "No space left on device" in printed

    with full_at_answer(disk) as variants:
        requests.step(variants, {})
        wait_for(reports_the_error, "an answer that cannot be stored")
        assert [path.name for path in folder.requests.glob("*.json")] == ["1.json"]
        disk.free()
        wait_for(lambda: list(folder.requests.iterdir()) == [], "the end of the request")
    requests.end()
    assert small_cloud.keys() == ["one.out"]
    assert small_cloud.object("one.out") == b"prediction"


def test_answer_that_the_bucket_refuses_is_a_failure(small_cloud: Cloud, disk: SmallDisk) -> None:
    folder = waiting(small_cloud, output="s3://absent-bucket/one.out")
    requests = AsyncRequests(folder)
    with full_at_answer(disk) as variants:
        disk.fill = lambda: None  # type: ignore[method-assign] # this container leaves the disk alone
        requests.step(variants, {})
        wait_for(lambda: list(folder.requests.iterdir()) == [], "the end of the request")
    requests.end()
    assert small_cloud.keys() == ["one-error.out"]
    assert small_cloud.object("one-error.out").startswith(b"The answer cannot be stored: NoSuchBucket")
