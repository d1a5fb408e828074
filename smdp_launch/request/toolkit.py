"""The hyperparameters from which AWS's training toolkit, and the entrypoint in its place, start the script."""

from __future__ import annotations

from pydantic import JsonValue

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.jobfile.model.spec import JobSpec
from smdp_launch.request.groups import DISTRIBUTION_GROUPS, training_group
from smdp_launch.request.hyperparameters import encode_value
from smdp_launch.request.names import source_location
from smdp_launch.source.scan import normal_name

#: The hyperparameter from which AWS's toolkit reads the instance type, if the request has only one type.
INSTANCE_TYPE = "sagemaker_instance_type"

#: The channel for the source archive if containers have no network, as in AWS's toolkit.
CODE_CHANNEL = "code"


def distribution(spec: JobSpec) -> dict[str, JsonValue]:
    """What requests the job's kind of distribution from the containers' toolkit, by hyperparameter."""
    if spec.engine in TORCH_DISTRIBUTED:
        return {"sagemaker_torch_distributed_enabled": True}
    return {
        "sagemaker_distributed_dataparallel_enabled": True,
        "sagemaker_distributed_dataparallel_custom_mpi_options": spec.engine_options.custom_mpi_options or "",
    }


def instance_type(spec: JobSpec) -> dict[str, JsonValue]:
    """The group that trains and the instance type, for the containers' toolkit, by hyperparameter."""
    if spec.compute.other_groups:
        # As the SDK sends it: the containers read the type of their own host.
        return {DISTRIBUTION_GROUPS: [training_group(spec)], INSTANCE_TYPE: None}
    # If there are several types, the service selects one at the start, and the containers read it from their host.
    return {INSTANCE_TYPE: spec.compute.instance_type} if spec.compute.fallback_types is None else {}


def launch_hyperparameters(spec: JobSpec, job: str) -> dict[str, str]:
    """Hyperparameters for the containers' toolkits, with AWS's names, so that the images of both engines read them."""
    archive = source_location(spec.output.s3, job)
    local = f"/opt/ml/input/data/{CODE_CHANNEL}/{archive.key.rpartition('/')[2]}"
    values: dict[str, JsonValue] = {
        "sagemaker_program": normal_name(spec.script.entry),
        "sagemaker_submit_directory": local if spec.network.isolated else str(archive),
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": job,
        "sagemaker_region": spec.region,
        **distribution(spec),
        **instance_type(spec),
    }
    return {name: encode_value(value) for name, value in values.items()}
