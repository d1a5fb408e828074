"""InvokeEndpoint: answers of the model's script, headers, refusals, and the errors of a container."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support.services.cloud import client_of
from tests.support.services.serving import Serving
from tests.support.waiting import DEADLINE

FAILS = """
def model_fn(model_dir):
    return None

def predict_fn(data, model):
    if data == "attributes":
        return data
    print("asked for", data)
    raise ValueError("no such luck")
"""
HEADERS = """
def model_fn(model_dir):
    return None

def transform_fn(model, data, content_type, accept, context):
    return "|".join([content_type, accept, context.get_request_header("X-Amzn-SageMaker-Custom-Attributes")])
"""


@pytest.fixture(scope="module")
def failing(serving: Serving) -> str:
    return serving.deploy("failing", FAILS)


def test_model_answers_request(serving: Serving, doubling: str) -> None:
    answer = serving.invoke(doubling, [1, 2.5])
    assert answer["ContentType"] == "application/json"
    assert answer["InvokedProductionVariant"] == "AllTraffic"
    assert json.loads(answer["Body"].read())["is"] == [2, 5]


def test_requests_are_spread_over_hosts(serving: Serving, doubling: str) -> None:
    answers = [serving.ask(doubling)["by"] for _ in range(4)]
    assert sorted(set(answers)) == sorted(one["instance"] for one in serving.hosts(doubling))
    assert answers.count(answers[0]) == 2


def test_hosts_listen_on_addresses_of_their_own(serving: Serving, doubling: str) -> None:
    addresses = [one["address"] for one in serving.hosts(doubling)]
    assert len(set(addresses)) == 2
    assert all(one.startswith("127.") and one != "127.0.0.1" for one in addresses)


def test_container_refuses_requests_without_the_local_clouds_secret(serving: Serving, doubling: str) -> None:
    """Every user of the machine reaches the container's address."""
    host = serving.hosts(doubling)[0]
    for headers in ({}, {"X-Smdp-Serve-Token": "wrong"}):
        connection = http.client.HTTPConnection(host["address"], host["port"], timeout=DEADLINE)
        connection.request("POST", "/invocations", b"[1]", headers)
        assert connection.getresponse().status == 403
        connection.close()


def test_64_callers_at_once_each_get_their_answer(serving: Serving, doubling: str) -> None:
    runtime = client_of(
        serving.cloud.endpoint,
        "sagemaker-runtime",
        config=Config(proxies={}, retries={"total_max_attempts": 1}, max_pool_connections=64),
    )

    def ask(number: int) -> list[float]:
        body = json.dumps([number])
        answer = runtime.invoke_endpoint(EndpointName=doubling, Body=body, ContentType="application/json")
        found: list[float] = json.loads(answer["Body"].read())["is"]
        return found

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(ask, range(64))) == [[2 * number] for number in range(64)]


def test_content_type_accept_and_attributes_reach_the_script(serving: Serving) -> None:
    serving.deploy("headers", HEADERS)
    answer = serving.invoke("headers", b"x", ContentType="text/own", Accept="text/plain", CustomAttributes="a=1")
    assert answer["ContentType"] == "text/plain"
    assert answer["Body"].read() == b"text/own|text/plain|a=1"
    serving.delete("headers")


def test_exception_of_script_is_a_model_error_with_its_log_stream(serving: Serving, failing: str) -> None:
    response = serving.error(failing, 7)
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert response["Error"]["Code"] == "ModelError"
    assert response["OriginalStatusCode"] == 500
    assert response["OriginalMessage"] == "predict_fn failed: ValueError: no such luck"
    message = 'Received server error (500) from primary with message "predict_fn failed: ValueError: no such luck".'
    assert response["Error"]["Message"].startswith(message)
    (host,) = serving.hosts(failing)
    stream = f"log-group:/aws/sagemaker/Endpoints/failing:log-stream:AllTraffic/{host['instance']}"
    assert response["LogStreamArn"].endswith(stream)


def test_log_has_output_and_traceback_of_script(serving: Serving, failing: str) -> None:
    serving.error(failing, "this")
    assert serving.await_log(failing, "asked for") == "asked for this" or "asked for this" in serving.log(failing)
    serving.await_log(failing, 'raise ValueError("no such luck")')
    (host,) = serving.hosts(failing)
    group = f"/aws/sagemaker/Endpoints/{failing}"
    (stream,) = serving.logs.describe_log_streams(logGroupName=group)["logStreams"]
    assert stream["logStreamName"] == f"AllTraffic/{host['instance']}"
    events = serving.logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"])["events"]
    assert "Traceback (most recent call last):" in [one["message"] for one in events]
    assert stream["creationTime"] == events[0]["timestamp"]
    groups = serving.logs.describe_log_groups(logGroupNamePrefix="/aws/sagemaker/Endpoints/f")["logGroups"]
    assert [one["logGroupName"] for one in groups] == [group]


def test_unsupported_content_type_is_a_client_error_of_the_model(serving: Serving, failing: str) -> None:
    response = serving.error(failing, b"x", ContentType="image/png")
    assert response["OriginalStatusCode"] == 415
    assert response["OriginalMessage"].startswith("Content type image/png is not supported. Supported types: ")
    assert response["Error"]["Message"].startswith("Received client error (415) from primary with message ")


def test_unknown_endpoint_is_not_found(serving: Serving) -> None:
    response = serving.error("unknown")
    assert response["Error"]["Code"] == "ValidationError"
    assert response["Error"]["Message"] == "Endpoint unknown of account 000000000000 not found."
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_endpoint_of_another_region_is_not_found(serving: Serving, doubling: str) -> None:
    elsewhere = client_of(serving.cloud.endpoint, "sagemaker-runtime", region_name="eu-west-1")
    with pytest.raises(ClientError, match="Endpoint doubling of account 000000000000 not found"):
        elsewhere.invoke_endpoint(EndpointName=doubling, Body=b"[1]")


def test_body_above_the_limit_is_refused(serving: Serving, failing: str) -> None:
    limit = 6 * 1024 * 1024
    response = serving.error(failing, b" " * (limit + 1))
    assert response["Error"]["Code"] == "413"
    assert response["Error"]["Message"] == f"HTTP content length exceeded {limit} bytes."


def test_body_of_the_limit_reaches_the_model(serving: Serving, failing: str) -> None:
    body = b'"attributes"'
    assert serving.ask(failing, body + b" " * (6 * 1024 * 1024 - len(body))) == "attributes"


@pytest.mark.runs
def test_answer_above_the_limit_is_a_model_error(serving: Serving) -> None:
    script = "def model_fn(d): pass\ndef transform_fn(m, body, c, a): return b'x' * int(body)\n"
    serving.deploy("large", script)
    limit = 6 * 1024 * 1024
    assert len(serving.invoke("large", limit)["Body"].read()) == limit
    response = serving.error("large", limit + 1)
    assert response["OriginalStatusCode"] == 0
    assert f"more than the {limit} bytes" in response["OriginalMessage"]
    serving.delete("large")


def test_variant_may_be_named(serving: Serving, doubling: str) -> None:
    assert serving.invoke(doubling, TargetVariant="AllTraffic")["InvokedProductionVariant"] == "AllTraffic"
    response = serving.error(doubling, TargetVariant="Other")
    assert response["Error"]["Message"] == "Variant Other not found for Request."


def test_request_with_wrong_key_is_refused(serving: Serving, doubling: str) -> None:
    wrong = client_of(serving.cloud.endpoint, "sagemaker-runtime", aws_secret_access_key="wrong")
    with pytest.raises(ClientError, match="signature"):
        wrong.invoke_endpoint(EndpointName=doubling, Body=b"[1]")


def test_account_may_deny_the_call(serving: Serving, doubling: str) -> None:
    account = serving.cloud.state_dir / "account.yaml"
    account.write_text('denied: ["sagemaker:InvokeEndpoint"]\n')
    try:
        response = serving.error(doubling)
    finally:
        account.unlink()
    assert response["Error"]["Code"] == "AccessDeniedException"


def test_slow_requests_delay_no_other_call(serving: Serving) -> None:
    """More requests wait for a model than the server has threads for other calls."""
    go = serving.cloud.state_dir / "go"
    script = f"""
        import os, time
        def model_fn(d): return None
        def predict_fn(data, model):
            while not os.path.exists({str(go)!r}):
                time.sleep(0.01)
            return data
        """
    serving.deploy("slow", script)
    config = Config(proxies={}, retries={"total_max_attempts": 1}, max_pool_connections=40)
    runtime = client_of(serving.cloud.endpoint, "sagemaker-runtime", config=config)

    def ask(number: int) -> bytes:
        answer = runtime.invoke_endpoint(EndpointName="slow", Body=str(number), ContentType="application/json")
        found: bytes = answer["Body"].read()
        return found

    with ThreadPoolExecutor(40) as pool:
        answers = [pool.submit(ask, number) for number in range(40)]
        try:
            for _ in range(3):
                assert serving.describe("slow")["EndpointStatus"] == "InService"
            assert not any(one.done() for one in answers)
        finally:
            go.touch()
        assert [one.result() for one in answers] == [str(number).encode() for number in range(40)]
    serving.delete("slow")


@pytest.mark.runs
def test_answer_that_takes_too_long_is_a_model_error(serving: Serving) -> None:
    script = "import time\ndef model_fn(d): pass\ndef predict_fn(x, m): time.sleep(x)\n"
    serving.deploy("late", script, SMDP_LOCAL_INVOCATION_TIMEOUT_S="1")
    response = serving.error("late", 30)
    assert response["OriginalStatusCode"] == 0
    assert response["OriginalMessage"].startswith("Your invocation timed out while waiting for a response from")
    serving.sagemaker.delete_endpoint(EndpointName="late")
