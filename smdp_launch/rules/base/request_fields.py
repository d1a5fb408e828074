"""Which field of the job file makes which field of the request."""

from __future__ import annotations

from smdp_launch.jobfile.yaml.document import Location
from smdp_launch.request.limits import Path

#: The job file's field for each field of the request. It covers everything below that field too.
FIELDS: dict[Path, Location] = {
    tuple(path.split(".")): tuple(field.split("."))
    for path, field in {
        "TrainingJobName": "name",
        "RoleArn": "role",
        "AlgorithmSpecification.TrainingImage": "image",
        "AlgorithmSpecification.AlgorithmName": "image",
        "AlgorithmSpecification.TrainingInputMode": "channels.NAME.mode",
        "AlgorithmSpecification.MetricDefinitions": "metrics",
        "HyperParameters": "script.hyperparameters",
        "Environment": "environment",
        "InputDataConfig": "channels",
        "OutputDataConfig.S3OutputPath": "output.s3",
        "OutputDataConfig.KmsKeyId": "encryption.output_key",
        "OutputDataConfig.CompressionType": "output.compression",
        "ResourceConfig.InstanceType": "compute.instance_type",
        "ResourceConfig.InstanceCount": "compute.instance_count",
        "ResourceConfig.InstancePreferences": "compute.fallback_types",
        "ResourceConfig.InstanceGroups": "compute.other_groups",
        "ResourceConfig.TrainingPlanArn": "compute.training_plan",
        "ResourceConfig.VolumeSizeInGB": "compute.volume_gb",
        "ResourceConfig.VolumeKmsKeyId": "encryption.volume_key",
        "ResourceConfig.KeepAlivePeriodInSeconds": "compute.keep_alive",
        "StoppingCondition.MaxRuntimeInSeconds": "compute.max_run",
        "StoppingCondition.MaxWaitTimeInSeconds": "spot.max_wait",
        "StoppingCondition.MaxPendingTimeInSeconds": "compute.max_pending",
        "CheckpointConfig.S3Uri": "checkpoint.s3",
        "CheckpointConfig.LocalPath": "checkpoint.path",
        "TensorBoardOutputConfig.S3OutputPath": "tracking.tensorboard.s3",
        "TensorBoardOutputConfig.LocalPath": "tracking.tensorboard.path",
        "VpcConfig.Subnets": "network.subnets",
        "VpcConfig.SecurityGroupIds": "network.security_groups",
        "EnableNetworkIsolation": "network.isolated",
        "EnableInterContainerTrafficEncryption": "network.encrypt_traffic",
        "EnableManagedSpotTraining": "spot",
        "RemoteDebugConfig.EnableRemoteDebug": "remote_debug",
        "RetryStrategy.MaximumRetryAttempts": "compute.retries",
        "Tags": "tags",
    }.items()
}

#: Structures that the launcher always writes. An overlay may omit their required fields.
MADE: frozenset[Path] = frozenset({(), *(path[:length] for path in FIELDS for length in range(1, len(path)))})


def field_of(path: Path) -> Location | None:
    """The job file's field that makes the request's field at ``path``, or one of its parents."""
    return next((FIELDS[path[:length]] for length in range(len(path), 0, -1) if path[:length] in FIELDS), None)
