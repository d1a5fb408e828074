"""Every field of CreateTrainingJob is applied, or named as one that is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from smdp_launch.catalog.not_simulated import APPLIED, NOT_SIMULATED, given, log_lines
from smdp_launch.localcloud.protocol.requests import service_model
from tests.support.services.cloud import BUCKET, Cloud


def fields() -> Iterator[str]:
    """Of the model; those of a structure, where the tables have its fields apart."""
    apart = {path.partition(".")[0] for path in [*APPLIED, *(one.path for one in NOT_SIMULATED)] if "." in path}
    shape = service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    for name, member in shape.members.items():
        if name not in apart:
            yield name
            continue
        inner = member.member if member.type_name == "list" else member
        yield from (f"{name}.{one}" for one in inner.members)


def test_every_field_of_the_model_is_in_one_of_the_tables() -> None:
    named = [one.path for one in NOT_SIMULATED]
    assert sorted([*named, *APPLIED]) == sorted(fields())


@pytest.mark.parametrize(
    ("request_", "paths"),
    [
        ({"EnableNetworkIsolation": False, "ProfilerConfig": {"DisableProfiler": True}, "Tags": []}, []),
        ({"ProfilerConfig": {"DisableProfiler": False}}, []),
        ({"ProfilerConfig": {"S3OutputPath": "s3://a/b"}}, ["ProfilerConfig"]),
        ({"RemoteDebugConfig": {"EnableRemoteDebug": False}}, []),
        ({"RemoteDebugConfig": {"EnableRemoteDebug": True}}, ["RemoteDebugConfig"]),
        ({"ResourceConfig": {"KeepAlivePeriodInSeconds": 0}}, []),
        ({"ResourceConfig": {"KeepAlivePeriodInSeconds": 60}}, ["ResourceConfig.KeepAlivePeriodInSeconds"]),
        ({"InputDataConfig": [{}, {"ShuffleConfig": {"Seed": 1}}]}, ["InputDataConfig.ShuffleConfig"]),
        ({"InputDataConfig": [{"CompressionType": "None"}]}, []),
    ],
)
def test_what_asks_for_nothing_is_not_named(request_: dict[str, object], paths: list[str]) -> None:
    assert [one.path for one in given(request_)] == paths


def test_the_first_hosts_log_names_what_a_job_asked_for_and_describe_returns_it(cloud: Cloud) -> None:
    asked = {
        "VpcConfig": {"SecurityGroupIds": ["sg-0a"], "Subnets": ["subnet-0a"]},
        "TensorBoardOutputConfig": {"S3OutputPath": f"s3://{BUCKET}/tensorboard", "LocalPath": "/opt/ml/output/tb"},
        "ExperimentConfig": {"ExperimentName": "first", "TrialName": "second"},
        "RetryStrategy": {"MaximumRetryAttempts": 2},
    }
    job = cloud.run("named", "print('trained', flush=True)", hosts=2, **asked)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert {name: job[name] for name in asked} == asked
    told = [line for line in cloud.log("named") if "Not simulated locally" in line]
    assert told == [f"[algo-1] {line}" for line in log_lines(asked)]
    assert len(told) == len(asked)
    assert cloud.log("named").index(told[0]) == 0
