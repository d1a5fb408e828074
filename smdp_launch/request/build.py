"""Build the exact CreateTrainingJob request for a JobSpec. Pure: the same input gives the same request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from smdp_launch.jobfile.model.channels import EfsChannel, FsxChannel, S3Channel
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.request.batch import script_hyperparameters
from smdp_launch.request.environment import SESSION_TAGS_VARIABLE, environment
from smdp_launch.request.hyperparameters import encode
from smdp_launch.request.image import image
from smdp_launch.request.names import S3Location, source_location
from smdp_launch.request.resources import resource_config
from smdp_launch.request.toolkit import CODE_CHANNEL, launch_hyperparameters
from smdp_launch.source.scan import SourceTree

#: The tag with the hash of the plan that a job was made from.
PLAN_TAG = "smdp-launch:plan"

Request = dict[str, Any]


def training_request(spec: JobSpec, source: SourceTree, job: str) -> Request:
    """The request's fields by the service's names, as arguments for ``create_training_job(**request)``."""
    request: Request = {
        "TrainingJobName": job,
        "AlgorithmSpecification": _algorithm(spec),
        "RoleArn": spec.role,
        "OutputDataConfig": _output(spec),
        "ResourceConfig": resource_config(spec),
        "StoppingCondition": _stopping(spec),
        "HyperParameters": encode(script_hyperparameters(spec)) | launch_hyperparameters(spec, job),
    }
    inputs = channels(spec, job)
    if inputs:
        request["InputDataConfig"] = inputs
    variables = environment(spec)
    if variables:
        request["Environment"] = variables
    if spec.checkpoint is not None:
        request["CheckpointConfig"] = {"S3Uri": checkpoint_location(spec, job), "LocalPath": spec.checkpoint.path}
    if spec.tracking.tensorboard is not None:
        board = spec.tracking.tensorboard
        request["TensorBoardOutputConfig"] = {"S3OutputPath": board.s3, "LocalPath": board.path}
    if spec.compute.retries is not None:
        request["RetryStrategy"] = {"MaximumRetryAttempts": spec.compute.retries}
    if spec.spot is not None:
        request["EnableManagedSpotTraining"] = True
    if spec.remote_debug:
        request["RemoteDebugConfig"] = {"EnableRemoteDebug": True}
    request |= _network(spec)
    request = with_overlay(request, spec.overlay)
    tags = [{"Key": key, "Value": value} for key, value in sorted(spec.tags.items())]
    request["Tags"] = [*tags, *request.get("Tags", []), {"Key": PLAN_TAG, "Value": plan_hash(request, source)}]
    return request


def channels(spec: JobSpec, job: str) -> list[Request]:
    """The job file's channels by name, and one for the source archive if the containers have no network."""
    entries = [_channel(name, channel) for name, channel in sorted(spec.channels.items())]
    if spec.network.isolated:
        where = source_location(spec.output.s3, job)
        entries.append(_channel(CODE_CHANNEL, S3Channel.model_construct(s3=str(where))))
    return entries


def checkpoint_location(spec: JobSpec, job: str) -> str | None:
    """The job's own prefix, unless the job file says ``shared``: jobs with the same prefix restore and overwrite each
    other's files."""
    if spec.checkpoint is None or spec.checkpoint.shared:
        return spec.checkpoint.s3 if spec.checkpoint is not None else None
    return str(S3Location.parse(spec.checkpoint.s3).join(job))


def tensorboard_location(spec: JobSpec, job: str) -> str | None:
    """The location of the job's event files: SageMaker adds to ``S3OutputPath``, and jobs can share it."""
    board = spec.tracking.tensorboard
    return str(S3Location.parse(board.s3).join(job, "tensorboard-output")) if board is not None else None


def with_overlay(request: Request, overlay: Mapping[str, JsonValue]) -> Request:
    """``request`` with the fields of ``overlay``, and the variable from which a resumed job knows one of them."""
    request = _merged(request, overlay)
    if request.get("SessionChainingConfig") == {"EnableSessionTagChaining": True}:
        request["Environment"] = {**request.get("Environment", {}), SESSION_TAGS_VARIABLE: "1"}
    return request


def _merged(request: Request, overlay: Mapping[str, JsonValue]) -> Request:
    """Mappings are merged, all other values of ``overlay`` replace."""
    result = dict(request)
    for name, value in overlay.items():
        present = result.get(name)
        if isinstance(present, dict) and isinstance(value, dict):
            result[name] = _merged(present, value)
        else:
            result[name] = value
    return result


#: In place of the job's name; no job can have this name.
_ANY_NAME = "<job>"


def plan_hash(request: Request, source: SourceTree) -> str:
    """The hash of the request without its tags, and of the source's names, modes and contents.

    The job's name contains the time. It is replaced by a constant everywhere, so an unchanged job has the same hash.
    """
    return request_hash(request, source, request["TrainingJobName"], _ANY_NAME)


def request_hash(request: Request, source: SourceTree, name: str, constant: str) -> str:
    """As ``plan_hash``, for a request of any kind: ``constant`` replaces its ``name``."""
    untagged = {key: value for key, value in request.items() if key != "Tags"}
    text = json.dumps([untagged, source.sha256], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.replace(name, constant).encode()).hexdigest()


def _algorithm(spec: JobSpec) -> Request:
    algorithm: Request = {"TrainingImage": image(spec), "TrainingInputMode": "File"}
    if spec.metrics:
        algorithm["MetricDefinitions"] = [
            {"Name": name, "Regex": regex} for name, regex in sorted(spec.metrics.items())
        ]
    return algorithm


def _channel(name: str, channel: S3Channel | FsxChannel | EfsChannel) -> Request:
    if isinstance(channel, S3Channel):
        return {"ChannelName": name, "DataSource": {"S3DataSource": _s3_source(channel)}} | _reading(channel)
    is_fsx = isinstance(channel, FsxChannel)
    source = {
        "FileSystemId": channel.fsx if isinstance(channel, FsxChannel) else channel.efs,
        "FileSystemType": "FSxLustre" if is_fsx else "EFS",
        "DirectoryPath": channel.path,
        "FileSystemAccessMode": channel.access,
    }
    return {"ChannelName": name, "DataSource": {"FileSystemDataSource": source}}


def _s3_source(channel: S3Channel) -> Request:
    source: Request = {
        "S3DataType": channel.data_type,
        "S3Uri": channel.s3,
        "S3DataDistributionType": channel.distribution,
    }
    if channel.attributes is not None:
        source["AttributeNames"] = channel.attributes
    if channel.groups is not None:
        source["InstanceGroupNames"] = channel.groups
    return source


def _reading(channel: S3Channel) -> Request:
    fields: Request = {"InputMode": channel.mode}
    if channel.content_type is not None:
        fields["ContentType"] = channel.content_type
    if channel.compression != "None":
        fields["CompressionType"] = channel.compression
    if channel.record_wrapping != "None":
        fields["RecordWrapperType"] = channel.record_wrapping
    if channel.shuffle is not None:
        fields["ShuffleConfig"] = {"Seed": channel.shuffle}
    return fields


def _output(spec: JobSpec) -> Request:
    output: Request = {"S3OutputPath": spec.output.s3}
    if spec.encryption.output_key is not None:
        output["KmsKeyId"] = spec.encryption.output_key
    return output | ({"CompressionType": "NONE"} if spec.output.compression == "none" else {})


def _stopping(spec: JobSpec) -> Request:
    condition = {"MaxRuntimeInSeconds": spec.compute.max_run}
    if spec.spot is not None and spec.spot.max_wait is not None:
        condition["MaxWaitTimeInSeconds"] = spec.spot.max_wait
    if spec.compute.max_pending is not None:
        condition["MaxPendingTimeInSeconds"] = spec.compute.max_pending
    return condition


def _network(spec: JobSpec) -> Request:
    fields: Request = {}
    if spec.network.subnets is not None and spec.network.security_groups is not None:
        fields["VpcConfig"] = {"Subnets": spec.network.subnets, "SecurityGroupIds": spec.network.security_groups}
    if spec.network.isolated:
        fields["EnableNetworkIsolation"] = True
    if spec.network.encrypt_traffic:
        fields["EnableInterContainerTrafficEncryption"] = True
    return fields
