"""InvokeEndpointAsync: inputs from S3 or the body, answers and errors in S3."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.services.cloud import BUCKET, kill
from tests.support.services.serving import Serving, container
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
