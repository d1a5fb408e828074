"""A job from a model trainer of the SageMaker Python SDK, version 3."""

from __future__ import annotations

from typing import Any

from smdp_launch.draft.sdk_call.estimator import (
    note_channels,
    note_starts,
    put_channels,
    put_network,
    put_spot,
    put_texts,
)
from smdp_launch.draft.sdk_call.find import Found
from smdp_launch.draft.sdk_call.job import At, SdkJob
from smdp_launch.draft.sdk_call.values import LOST, Made, Unknown

#: Arguments of the objects that a trainer is made of, by the trainer's argument.
_PLAIN: dict[str, dict[str, At]] = {
    "compute": {
        "instance_type": ("compute", "instance_type"),
        "volume_kms_key_id": ("encryption", "volume_key"),
        "training_plan_arn": ("compute", "training_plan"),
    },
    "networking": {
        "enable_network_isolation": ("network", "isolated"),
        "enable_inter_container_traffic_encryption": ("network", "encrypt_traffic"),
    },
    "output_data_config": {"kms_key_id": ("encryption", "output_key")},
    "checkpoint_config": {"local_path": ("checkpoint", "path")},
    "source_code": {"entry_script": ("script", "entry")},
}
_NUMBERS: dict[str, dict[str, At]] = {
    "compute": {
        "instance_count": ("compute", "instance_count"),
        "volume_size_in_gb": ("compute", "volume_gb"),
        "keep_alive_period_in_seconds": ("compute", "keep_alive"),
    },
    "stopping_condition": {
        "max_runtime_in_seconds": ("compute", "max_run"),
        "max_pending_time_in_seconds": ("compute", "max_pending"),
    },
}
_READ = frozenset(
    {
        *("training_image", "role", "base_job_name", "hyperparameters", "environment", "tags", "input_data_config"),
        *("distributed", "training_input_mode", "sagemaker_session"),
        *_PLAIN,
        *_NUMBERS,
    }
)


def read_trainer(found: Found) -> SdkJob:
    """The job, without its framework, source folder and name, which depend on more than the call."""
    call, job = found.made, SdkJob()
    job.put(("image",), call.get("training_image"))
    job.role(call.get("role"))
    job.hyperparameters(call.get("hyperparameters") or {})
    for argument, fields in _PLAIN.items():
        for name, at in fields.items():
            value = _part(call, argument, name)
            job.put(at, None if value is False else value)
    for argument, fields in _NUMBERS.items():
        for name, at in fields.items():
            job.put_number(at, _part(call, argument, name))
    job.values.setdefault(("compute", "max_run"), 3600)  # the default of version 3
    output = _part(call, "output_data_config", "s3_output_path")
    job.place(("output", "s3"), output, "output")
    if _part(call, "output_data_config", "compression_type") in ("NONE", "None"):
        job.values["output", "compression"] = "none"
    checkpoints = call.get("checkpoint_config") or _argument(found, "with_checkpoint_config")
    if checkpoints is not None:
        job.place(
            ("checkpoint", "s3"), checkpoints.get("s3_uri") if isinstance(checkpoints, Made) else None, "checkpoints"
        )
    put_network(job, _part(call, "networking", "subnets"), _part(call, "networking", "security_group_ids"))
    put_texts(job, "environment", call.get("environment"))
    put_texts(job, "tags", _pairs(call.get("tags"), "key", "value"))
    put_texts(job, "metrics", _pairs(_argument(found, "with_metric_definitions"), "name", "regex"))
    retry = _argument(found, "with_retry_strategy")
    if isinstance(retry, Made):
        job.put_number(("compute", "retries"), retry.get("maximum_retry_attempts"))
    if _part(call, "compute", "enable_managed_spot_training") is True:
        put_spot(job, _part(call, "stopping_condition", "max_wait_time_in_seconds"))
    put_channels(job, _inputs(job, found), call.get("training_input_mode"))
    note_starts(job, found, "train")
    _note_rest(job, found)
    return job


def distribution_of(found: Found) -> str | None:
    """The engine that ``distributed`` means; None without a known one."""
    chosen = found.made.get("distributed")
    return "nccl" if isinstance(chosen, Made) and chosen.name == "Torchrun" else None


def source_code(found: Found) -> Made:
    code = found.made.get("source_code")
    return code if isinstance(code, Made) else Made("SourceCode", [])


def _part(call: Made, argument: str, name: str) -> Any:
    value = call.get(argument)
    if isinstance(value, Made):
        return value.get(name)
    return None if value is None else Unknown(f"{argument}.{name}")


def _argument(found: Found, method: str) -> Any:
    call = found.with_.get(method)
    if call is None:
        return None
    return call.given[0] if call.given else next(iter(call.named.values()), None)


def _pairs(value: Any, key: str, content: str) -> Any:
    """A list of objects such as ``Tag(key=..., value=...)`` as one mapping."""
    if not isinstance(value, list):
        return value
    listed = [one for one in value if isinstance(one, Made) and isinstance(one.get(key), str)]
    return {one.get(key): one.get(content) for one in listed}


def _inputs(job: SdkJob, found: Found) -> dict[str, Any]:
    started = found.started.get("input_data_config", 0) if found.started is not None else None
    channels: dict[str, Any] = {}
    is_lost = found.started is not None and any(one.startswith(LOST) for one in found.started.named)
    for listed in (found.made.get("input_data_config"), started):
        is_lost |= listed is not None and not isinstance(listed, list)
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, Made) and isinstance(one.get("channel_name"), str):
                channels[one.get("channel_name")] = _source(one)
            else:
                is_lost = True
    if is_lost:
        note_channels(job, found, "train", some=bool(channels))
    return channels


def _source(channel: Made) -> Any:
    """The location of an InputData or Channel, or the object with the location in it."""
    source = channel.get("data_source")
    for name in ("s3_data_source", "file_system_data_source"):
        if isinstance(source, Made) and source.get(name) is not None:
            source = source.get(name)
    if not isinstance(source, Made):
        return source
    renamed = {"s3_data_distribution_type": "distribution"}
    named = {renamed.get(name, name): value for name, value in source.named.items()}
    more = {"content_type": channel.get("content_type"), "input_mode": channel.get("input_mode")}
    return Made(source.path, source.given, {**named, **{name: one for name, one in more.items() if one is not None}})


def _note_rest(job: SdkJob, found: Found) -> None:
    rest = sorted(name for name, value in found.made.named.items() if name not in _READ and value is not None)
    known = {"with_checkpoint_config", "with_metric_definitions", "with_retry_strategy"}
    rest += sorted(name for name in found.with_ if name not in known)
    if rest:
        job.notes.append(f"not taken over: {', '.join(rest)}")
