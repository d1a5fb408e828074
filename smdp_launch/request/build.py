"""A JobSpec to the exact CreateTrainingJob request. Pure: the same input gives the same request."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import JsonValue

from smdp_launch.catalog.frameworks import build
from smdp_launch.catalog.registries import training_image
from smdp_launch.jobfile.spec import Channel, JobSpec
from smdp_launch.request.hyperparameters import encode, encode_value
from smdp_launch.request.names import S3Location, source_location
from smdp_launch.source.scan import SourceTree, normal_name

#: The tag by which a job is known as that of one plan.
PLAN_TAG = "smdp-launch:plan"

Request = dict[str, Any]


def training_request(spec: JobSpec, source: SourceTree, job: str) -> Request:
    """The request's members as the service names them; ready for ``create_training_job(**request)``."""
    request: Request = {
        "TrainingJobName": job,
        "AlgorithmSpecification": {"TrainingImage": image(spec), "TrainingInputMode": "File"},
        "RoleArn": spec.role,
        "InputDataConfig": [_channel(name, channel) for name, channel in sorted(spec.channels.items())],
        "OutputDataConfig": {"S3OutputPath": spec.output.s3},
        "ResourceConfig": {
            "InstanceType": spec.compute.instance_type,
            "InstanceCount": spec.compute.instance_count,
            "VolumeSizeInGB": spec.compute.volume_gb,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": spec.compute.max_run},
        "HyperParameters": encode(spec.script.hyperparameters) | _launch_hyperparameters(spec, job),
    }
    if spec.engine == "native":
        # The entrypoint puts our engine's import paths before those of AWS's library, should the image hold both.
        request["Environment"] = {"SMDP_ENGINE": "native"}
    if spec.checkpoint is not None:
        # Each job below a prefix of its own: jobs with one prefix restore and overwrite each other's files.
        where = S3Location.parse(spec.checkpoint.s3).join(job)
        request["CheckpointConfig"] = {"S3Uri": str(where), "LocalPath": spec.checkpoint.path}
    request["Tags"] = [{"Key": PLAN_TAG, "Value": plan_hash(request, source)}]
    return request


def image(spec: JobSpec) -> str:
    """The job file's image, else AWS's own for the framework.

    Raises:
        ValueError: there is none; a rule has said so already.
    """
    if spec.image is not None:
        return spec.image
    found = build(spec.framework.name, spec.framework.version)
    if found is None:
        raise ValueError(f"no image of {spec.framework.name} {spec.framework.version}")
    return training_image(found, spec.region)


def plan_hash(request: Request, source: SourceTree) -> str:
    """Of all that is submitted: the request without its tags, and the source's names, modes and contents."""
    untagged = {key: value for key, value in request.items() if key != "Tags"}
    text = json.dumps([untagged, source.sha256], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _channel(name: str, channel: Channel) -> Request:
    return {
        "ChannelName": name,
        "DataSource": {
            "S3DataSource": {
                "S3DataType": "S3Prefix",
                "S3Uri": channel.s3,
                "S3DataDistributionType": "FullyReplicated",
            }
        },
        "InputMode": channel.mode,
    }


def _launch_hyperparameters(spec: JobSpec, job: str) -> dict[str, str]:
    """What the containers' toolkits read: AWS's names, so that either engine's image understands them."""
    values: dict[str, JsonValue] = {
        "sagemaker_program": normal_name(spec.script.entry),
        "sagemaker_submit_directory": str(source_location(spec.output.s3, job)),
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": job,
        "sagemaker_region": spec.region,
        "sagemaker_distributed_dataparallel_enabled": True,
        "sagemaker_distributed_dataparallel_custom_mpi_options": "",
        "sagemaker_instance_type": spec.compute.instance_type,
    }
    return {name: encode_value(value) for name, value in values.items()}
