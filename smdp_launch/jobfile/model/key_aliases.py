"""Keys at the wrong place: keys of another section, and the SageMaker SDK's names for fields of the job file."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from pydantic import BaseModel

from smdp_launch.jobfile.model.schema import fields, model_of
from smdp_launch.jobfile.model.spec import JobSpec

_SDK = {
    "base_job_name": "name",
    "checkpoint_local_path": "checkpoint.path",
    "checkpoint_s3_uri": "checkpoint.s3",
    "disable_output_compression": "output.compression",
    "distribution": "engine: smdistributed",
    "enable_network_isolation": "network.isolated",
    "encrypt_inter_container_traffic": "network.encrypt_traffic",
    "entry_point": "script.entry",
    "framework_version": "framework.version",
    "image_uri": "image",
    "input_mode": "channels.NAME.mode",
    "inputs": "channels",
    "keep_alive_period_in_seconds": "compute.keep_alive",
    "max_concurrent_transforms": "serve.concurrency",
    "max_payload": "serve.max_payload_mb",
    "max_retries": "retries.at_most",
    "max_retry": "retries.at_most",
    "max_retry_attempts": "compute.retries",
    "metric_definitions": "metrics",
    "max_jobs": "sweep.trials",
    "max_parallel_jobs": "sweep.parallel",
    "mpi": "engine",
    "hyperparameter_ranges": "sweep.ranges",
    "objective_metric_name": "sweep.objective.metric",
    "output_kms_key": "encryption.output_key",
    "output_path": "output.s3",
    "py_version": "framework.python",
    "pytorchddp": "engine: smdistributed",
    "pytorch_version": "framework.version",
    "role_arn": "role",
    "security_group_ids": "network.security_groups",
    "smdistributed": "engine: smdistributed",
    "torch_distributed": "engine: nccl",
    "source_dir": "script.source",
    "split_type": "serve.split",
    "tensorflow_version": "framework.version",
    "transformers_version": "framework.transformers",
    "use_spot_instances": "spot",
    "volume_kms_key": "encryption.volume_key",
    "volume_size": "compute.volume_gb",
}


def field_for(key: str) -> str | None:
    """The field that the unknown ``key`` means: a key of another section, or the SDK's name of a field."""
    return _SDK.get(key) or _fields().get(key)


@functools.cache
def _fields() -> dict[str, str]:
    """The paths of fields by name, for names that only one section has."""
    paths: dict[str, str | None] = {}
    for name, path in _walk(JobSpec, ""):
        if name in paths and path.startswith(("serve.", "sweep.")):
            continue  # such as instance_type: the job's own key is meant
        paths[name] = None if name in paths else path
    return {name: path for name, path in paths.items() if path is not None}


def _walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str]]:
    for name, info in fields(model).items():
        yield name, f"{prefix}{name}"
        inner = model_of(info.annotation, None) if name != "channels" else None
        if inner is not None:
            yield from _walk(inner, f"{prefix}{name}.")
