"""Requests are refused with the service's code, status and message; docs/reference/refusals.md lists them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.conftest import ROOT
from tests.support.services.cloud import ENDED, Cloud, client_of
from tests.support.waiting import wait_for
from tools.refusals_page import PAGE, page, read_rows

ROWS: list[dict[str, Any]] = read_rows()
SOURCES = ("model", "memory", "local")
_LONG, _MANY = "x" * 2501, 101


def changed(request: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for one in parents:
        request = request.setdefault(one, {})
    if value == "~absent":
        request.pop(last, None)
    else:
        request[last] = special(last, value)


def special(name: str, value: Any) -> Any:
    if value == "~long":
        return _LONG
    if value == "~many":
        many = {f"key-{number}": "x" for number in range(_MANY)}
        return many if name != "Tags" else [{"Key": key, "Value": one} for key, one in many.items()]
    return value


def tuning_job(job: dict[str, Any]) -> dict[str, Any]:
    """A valid CreateHyperParameterTuningJob request whose trials are this job."""
    definition = {name: value for name, value in job.items() if name not in ("TrainingJobName", "HyperParameters")}
    metrics = [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    definition["AlgorithmSpecification"] = {**job["AlgorithmSpecification"], "MetricDefinitions": metrics}
    config = {
        "Strategy": "Random",
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 1, "MaxParallelTrainingJobs": 1},
        "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "lr", "MinValue": "0.1", "MaxValue": "0.2"}]},
    }
    return {
        "HyperParameterTuningJobName": job["TrainingJobName"],
        "HyperParameterTuningJobConfig": config,
        "TrainingJobDefinition": {**definition, "StaticHyperParameters": job["HyperParameters"]},
    }


def send(cloud: Cloud, call: str, body: dict[str, Any] | bytes) -> None:
    """Send the call with this body, null fields included, which no AWS client would send."""
    config = Config(parameter_validation=False, proxies={}, retries={"total_max_attempts": 1})
    client = client_of(cloud.endpoint, "sagemaker", config=config)
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    client.meta.events.register(f"before-call.sagemaker.{call}", lambda params, **_: params.update(body=encoded))
    client._make_api_call(call, {})


@pytest.fixture
def account(shared_cloud: Cloud) -> Iterator[Path]:
    path = shared_cloud.state_dir / "account.yaml"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def valid(shared_cloud: Cloud) -> str:
    return json.dumps(shared_cloud.request("refused"))


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{number}-{next(iter(one['change']), '')}" for number, one in enumerate(ROWS)]
)
def test_invalid_request_is_refused_as_by_the_service(
    shared_cloud: Cloud, account: Path, valid: str, row: dict[str, Any]
) -> None:
    call = row.get("call", "CreateTrainingJob")
    request = json.loads(valid) if call == "CreateTrainingJob" else {}
    if call == "CreateHyperParameterTuningJob":
        request = tuning_job(json.loads(valid))
    for path, value in row["change"].items():
        changed(request, path, value)
    if "account" in row:
        account.write_text(row["account"])
    with pytest.raises(ClientError) as caught:
        send(shared_cloud, call, request)
    response = caught.value.response
    assert response["Error"]["Code"] == row["code"], response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == row.get("status", 400)
    assert row["message"] in response["Error"]["Message"]
    assert not (shared_cloud.state_dir / "jobs/refused").exists()
    assert not (shared_cloud.state_dir / "tunings/refused").exists()


def test_valid_request_is_accepted(shared_cloud: Cloud, valid: str) -> None:
    send(shared_cloud, "CreateTrainingJob", {**json.loads(valid), "TrainingJobName": "taken"})
    assert shared_cloud.wait("taken")["TrainingJobStatus"] == "Completed"


def test_valid_tuning_job_is_accepted(shared_cloud: Cloud, valid: str) -> None:
    request = {**tuning_job(json.loads(valid)), "HyperParameterTuningJobName": "valid-tuning"}
    send(shared_cloud, "CreateHyperParameterTuningJob", request)
    shared_cloud.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="valid-tuning")
    wait_for(
        lambda: (
            shared_cloud.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="valid-tuning")[
                "HyperParameterTuningJobStatus"
            ]
            in ENDED
        ),
        "the end of the tuning job",
    )


def test_table_has_sixty_rows_each_with_a_source() -> None:
    assert len(ROWS) >= 60
    assert [one for one in ROWS if one["source"] not in SOURCES and not one["source"].startswith("https://")] == []


def test_page_equals_the_table() -> None:
    assert (ROOT / PAGE).read_text() == page(ROWS), "run tools/refusals_page.py"


@pytest.mark.parametrize(
    ("changes", "report"),
    [
        ({"ResourceConfig": {"InstanceCount": "2"}}, "Invalid type for parameter ResourceConfig.InstanceCount"),
        ({"RoleArn": None}, "Invalid type for parameter RoleArn"),
    ],
)
def test_stock_client_refuses_invalid_types_itself(shared_cloud: Cloud, changes: dict[str, Any], report: str) -> None:
    """This is why a client without validation sends the rows."""
    from botocore.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError, match=report):
        shared_cloud.sagemaker.create_training_job(**{**shared_cloud.request("refused"), **changes})


def test_error_counts_every_violation(shared_cloud: Cloud, valid: str) -> None:
    request = {**json.loads(valid), "TrainingJobName": "under_score", "RoleArn": "unknown"}
    with pytest.raises(ClientError) as caught:
        send(shared_cloud, "CreateTrainingJob", request)
    message = caught.value.response["Error"]["Message"]
    head, *found = message.split("; ")
    assert head.startswith("3 validation errors detected: Value 'under_score' at 'trainingJobName'")
    assert [one.partition("failed")[0] for one in found] == ["Value 'unknown' at 'roleArn' "] * 2


@pytest.mark.parametrize("levels", [200, 240, 260, 300, 5000])
def test_deeply_nested_search_expression_is_answered_or_refused(shared_cloud: Cloud, levels: int) -> None:
    head, tail = b'{"SubExpressions": [' * levels, b"]}" * levels
    body = b'{"Resource": "TrainingJob", "SearchExpression": ' + head + b"{}" + tail + b"}"
    try:
        send(shared_cloud, "Search", body)
    except ClientError as error:
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 400, error.response
        assert levels > 200
    else:
        assert levels < 300
