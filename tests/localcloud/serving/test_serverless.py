"""Serverless variants: their configuration, and their limits of requests, bytes and memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.services.serving import Serving
from tests.support.waiting import wait_for

WAITS = """
import os, time

def model_fn(model_dir):
    return None

def predict_fn(data, model):
    while data and not os.path.exists(data):
        time.sleep(0.01)
    return "done"
"""
GROWS = """
import time

def model_fn(model_dir):
    return []

def predict_fn(data, model):
    model.append(bytearray(data * 1024 * 1024))
    time.sleep(600)
"""


def deploy(serving: Serving, name: str, script: str, memory: int = 2048, most: int = 1) -> None:
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": serving.create_model(name, script),
        "ServerlessConfig": {"MemorySizeInMB": memory, "MaxConcurrency": most},
    }
    serving.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    serving.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    described = serving.wait(name)
    assert described["EndpointStatus"] == "InService", described.get("FailureReason")


def test_request_above_the_concurrency_is_throttled(serving: Serving) -> None:
    deploy(serving, "concurrent", WAITS)
    (variant,) = serving.describe("concurrent")["ProductionVariants"]
    assert variant["CurrentServerlessConfig"] == {"MemorySizeInMB": 2048, "MaxConcurrency": 1}
    assert "CurrentInstanceCount" not in variant
    go = serving.cloud.state_dir / "go"
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(ask, serving, "concurrent", str(go)) for _ in range(2)]
        wait_for(lambda: any(one.done() for one in both), "the refusal of one request")
        go.touch()
        assert sorted(one.result() for one in both) == ["ThrottlingException", "done"]
    assert serving.ask("concurrent", "") == "done"
    limit = 4 * 1024 * 1024
    response = serving.error("concurrent", b" " * (limit + 1))
    assert response["Error"]["Code"] == "ValidationError"
    assert response["Error"]["Message"].endswith(" has oversize body.")
    serving.delete("concurrent")


def ask(serving: Serving, name: str, body: str) -> str:
    """The answer, or the code of the refusal."""
    try:
        return str(serving.ask(name, body))
    except ClientError as error:
        return str(error.response["Error"]["Code"])


@pytest.mark.runs
def test_container_above_its_memory_is_killed_and_started_again(serving: Serving) -> None:
    deploy(serving, "grows", GROWS, memory=1024)
    response = serving.error("grows", 1200)
    assert response["Error"]["Code"] == "ModelError"
    text = "The container needs more than 1024 MB (MemorySizeInMB): out of memory, killed; it is started again"
    serving.await_log("grows", text)
    serving.await_log("grows", "ready")
    serving.sagemaker.delete_endpoint(EndpointName="grows")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ServerlessConfig": {"MemorySizeInMB": 1500, "MaxConcurrency": 1}}, "must be a multiple of 1024, found 1500"),
        ({"InitialInstanceCount": 1}, "ServerlessConfig excludes InstanceType and InitialInstanceCount"),
        (
            {"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1, "ProvisionedConcurrency": 2}},
            "must not be greater than MaxConcurrency",
        ),
    ],
)
def test_invalid_serverless_variant_is_refused(serving: Serving, changes: dict[str, Any], message: str) -> None:
    variant = {"VariantName": "A", "ModelName": "m", "ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}
    with pytest.raises(ClientError, match=message):
        serving.sagemaker.create_endpoint_config(EndpointConfigName="no", ProductionVariants=[{**variant, **changes}])


def test_concurrency_above_the_quota_of_the_account_is_refused(serving: Serving) -> None:
    account, name = serving.cloud.state_dir / "account.yaml", "concurrency-quota"
    quota = "Maximum total concurrency that can be allocated across all serverless endpoints"
    account.write_text(f"quotas: {{{quota}: 4}}\n")
    serverless = {"MemorySizeInMB": 1024, "MaxConcurrency": 5}
    variant = {"VariantName": "one", "ModelName": serving.create_model(name), "ServerlessConfig": serverless}
    serving.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    try:
        with pytest.raises(ClientError, match=f"service limit '{quota}' is 4 None, with .* a request delta of 5 None"):
            serving.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    finally:
        account.unlink()
