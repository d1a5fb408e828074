"""Fields of a CreateTrainingJob request that the local cloud accepts, returns and does not apply, each with the reason.

The log of a local job and the plan of a local run both read this table. A test checks that each field of the service's
model is in this table or in `APPLIED`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple


class Field(NamedTuple):
    """Args:
    path: from the request's root; through a list it leads to each entry.
    setting: the name in the job file; None where a job file can set the field only in `overlay`.
    """

    path: str
    reason: str
    setting: str | None = None


SPOT = "EnableManagedSpotTraining"

NOT_SIMULATED = (
    Field(SPOT, "hosts keep running: only an injected fault takes capacity away", "spot"),
    Field("VpcConfig", "hosts use this machine's network, without subnets and security groups", "network.subnets"),
    Field(
        "EnableInterContainerTrafficEncryption",
        "traffic between hosts stays on this machine, unencrypted",
        "network.encrypt_traffic",
    ),
    Field("RetryStrategy", "a job that fails is not started again", "compute.retries"),
    Field("ResourceConfig.KeepAlivePeriodInSeconds", "no later job starts faster", "compute.keep_alive"),
    Field("ResourceConfig.InstancePreferences", "the first type is taken", "compute.fallback_types"),
    Field("ResourceConfig.VolumeKmsKeyId", "hosts use this machine's disk, unencrypted", "encryption.volume_key"),
    Field("ResourceConfig.TrainingPlanArn", "there are no training plans", "compute.training_plan"),
    Field("ResourceConfig.InstancePlacementConfig", "all hosts are on this machine"),
    Field("StoppingCondition.MaxPendingTimeInSeconds", "jobs start at once", "compute.max_pending"),
    Field("OutputDataConfig.KmsKeyId", "objects are plain files, unencrypted", "encryption.output_key"),
    Field("AlgorithmSpecification.AlgorithmName", "no algorithm is looked up: the training entrypoint runs"),
    Field("AlgorithmSpecification.TrainingImageConfig", "no image is pulled from a private registry"),
    Field("InputDataConfig.CompressionType", "data is not decompressed"),
    Field("InputDataConfig.RecordWrapperType", "records are not wrapped"),
    Field("InputDataConfig.ShuffleConfig", "data is not shuffled"),
    Field("DebugHookConfig", "no debugger runs"),
    Field("DebugRuleConfigurations", "no debugger runs"),
    Field("ProfilerConfig", "no profiler runs"),
    Field("ProfilerRuleConfigurations", "no profiler runs"),
    Field("ExperimentConfig", "no experiment or trial is created"),
    Field("RemoteDebugConfig", "hosts have no Session Manager", "remote_debug"),
    Field("InfraCheckConfig", "instances are not checked"),
    Field("SessionChainingConfig", "sessions have no tags"),
    Field("ServerlessJobConfig", "no serverless job runs"),
    Field("MlflowConfig", "no run is recorded in MLflow"),
    Field("ModelPackageConfig", "no model package is created"),
)

#: Fields that the local cloud applies, or refuses where it cannot. A structure that is absent is listed field by field.
APPLIED = frozenset(
    [
        *("TrainingJobName", "RoleArn", "HyperParameters", "Environment", "Tags", "CheckpointConfig"),
        "TensorBoardOutputConfig",
        "EnableNetworkIsolation",
        *("AlgorithmSpecification.TrainingImage", "AlgorithmSpecification.TrainingInputMode"),
        *("AlgorithmSpecification.MetricDefinitions", "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries"),
        *("AlgorithmSpecification.ContainerEntrypoint", "AlgorithmSpecification.ContainerArguments"),
        *("InputDataConfig.ChannelName", "InputDataConfig.DataSource", "InputDataConfig.InputMode"),
        "InputDataConfig.ContentType",
        *("OutputDataConfig.S3OutputPath", "OutputDataConfig.CompressionType"),
        # The plan of every local run names the type and the volume.
        *("ResourceConfig.InstanceType", "ResourceConfig.InstanceCount", "ResourceConfig.VolumeSizeInGB"),
        "ResourceConfig.InstanceGroups",
        # The service's own fields.
        *("ResourceConfig.SelectedInstanceType", "ResourceConfig.SelectedInstanceCount"),
        *("StoppingCondition.MaxRuntimeInSeconds", "StoppingCondition.MaxWaitTimeInSeconds"),
    ]
)


def requested(request: Mapping[str, Any]) -> Iterator[Field]:
    """The fields of the table that the request sets. A switch that is off, a disabled profiler and an empty list do not
    count."""
    for field in NOT_SIMULATED:
        if any(_is_set(value) for value in _values(request, field.path)):
            yield field


def log_lines(request: Mapping[str, Any]) -> list[str]:
    return [f"Not simulated locally: {one.path}: {one.reason}." for one in requested(request)]


def _is_set(value: Any) -> bool:
    if isinstance(value, dict) and (value.get("DisableProfiler") or all(one is False for one in value.values())):
        return False
    return value not in (None, False, 0, "", "None", [], {})


def _values(value: Any, path: str) -> Iterator[Any]:
    name, _, rest = path.partition(".")
    if isinstance(value, list):
        for one in value:
            yield from _values(one, path)
    elif isinstance(value, dict) and name in value:
        yield from _values(value[name], rest) if rest else [value[name]]
