"""Every field of CreateTrainingJob is either applied or listed as not simulated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from smdp_launch.catalog.not_simulated import APPLIED, NOT_SIMULATED, log_lines, requested
from smdp_launch.localcloud.protocol.requests import service_model
from tests.support.services.cloud import Cloud


def fields() -> Iterator[str]:
    """The fields of the model; those of a structure separately, where the tables list them separately."""
    separate = {path.partition(".")[0] for path in [*APPLIED, *(one.path for one in NOT_SIMULATED)] if "." in path}
    shape = service_model("sagemaker").operation_model("CreateTrainingJob").input_shape
    for name, member in shape.members.items():
        if name not in separate:
            yield name
            continue
        inner = member.member if member.type_name == "list" else member
        yield from (f"{name}.{one}" for one in inner.members)


def test_every_field_of_the_model_is_in_one_table() -> None:
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
def test_field_without_effect_is_not_listed(request_: dict[str, object], paths: list[str]) -> None:
    assert [one.path for one in requested(request_)] == paths


def test_log_of_first_host_lists_fields_that_are_not_simulated(cloud: Cloud) -> None:
    options = {
        "VpcConfig": {"SecurityGroupIds": ["sg-0a"], "Subnets": ["subnet-0a"]},
        "InfraCheckConfig": {"EnableInfraCheck": True},
        "ExperimentConfig": {"ExperimentName": "first", "TrialName": "second"},
        "RetryStrategy": {"MaximumRetryAttempts": 2},
    }
    job = cloud.run("named", "print('trained', flush=True)", hosts=2, **options)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert {name: job[name] for name in options} == options
    lines = [line for line in cloud.log("named") if "Not simulated locally" in line]
    assert lines == [f"[algo-1] {line}" for line in log_lines(options)]
    assert len(lines) == len(options)
    assert cloud.log("named").index(lines[0]) == 0
