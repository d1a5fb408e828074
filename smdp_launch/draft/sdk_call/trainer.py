"""A job from a model trainer of the SageMaker Python SDK, version 3."""

from __future__ import annotations

import re
from typing import Any

from smdp_launch.draft.sdk_call.channels import put_input_data
from smdp_launch.draft.sdk_call.estimator import note_starts, pairs, put_groups, put_network, put_spot, put_texts
from smdp_launch.draft.sdk_call.find import Found
from smdp_launch.draft.sdk_call.job import At, SdkJob, shortened, source_of
from smdp_launch.draft.sdk_call.values import Made, Unknown
from smdp_launch.secret_forms import says_secret, without_forms

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


def read_trainer(found: Found) -> SdkJob:
    """The job, without its framework, source folder and name, which depend on more than the call."""
    call, job = found.made, SdkJob()
    job.image(call.get("training_image"))
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
    put_groups(job, _part(call, "compute", "instance_groups"))
    _put_command(job, source_code(found))
    job.place(("output", "s3"), _part(call, "output_data_config", "s3_output_path"), "output")
    compression = _part(call, "output_data_config", "compression_type")
    if compression not in (None, "GZIP"):
        is_off = compression in ("NONE", "None")
        job.put(("output", "compression"), "none" if is_off else compression)
    checkpoints = call.get("checkpoint_config") or _argument(found, "with_checkpoint_config")
    if checkpoints is not None or "with_checkpoint_config" in found.with_:
        is_read = isinstance(checkpoints, Made)
        job.checkpoints(checkpoints.get("s3_uri") if is_read else checkpoints)
        job.put(("checkpoint", "path"), checkpoints.get("local_path") if is_read else None)
    put_network(job, _part(call, "networking", "subnets"), _part(call, "networking", "security_group_ids"))
    put_texts(job, "environment", call.get("environment"))
    put_texts(job, "tags", pairs(job, "tags", call.get("tags"), "key", "value"))
    metrics = _argument(found, "with_metric_definitions")
    put_texts(job, "metrics", pairs(job, "metrics", metrics, "name", "regex"))
    retry = _argument(found, "with_retry_strategy")
    job.put_number(("compute", "retries"), retry.get("maximum_retry_attempts") if isinstance(retry, Made) else retry)
    if job.is_on(("spot",), _part(call, "compute", "enable_managed_spot_training")):
        put_spot(job, _part(call, "stopping_condition", "max_wait_time_in_seconds"))
    put_input_data(job, found)
    note_starts(job, found, "train")
    return job


def distribution_of(found: Found) -> str | None:
    """The engine that ``distributed`` means; None without a known one."""
    chosen = found.made.get("distributed")
    is_torchrun = isinstance(chosen, Made) and chosen.name == "Torchrun"
    return "nccl" if is_torchrun and chosen.get("smp") is None else None  # smp: the library for model parallelism


def source_code(found: Found) -> Made:
    code = found.made.get("source_code")
    return code if isinstance(code, Made) else Made("SourceCode", [])


def _put_command(job: SdkJob, code: Made) -> None:
    """Note the command of ``SourceCode``, which the SDK runs in place of the entry script."""
    command = code.get("command")
    if command is None:
        return
    text = shortened(without_forms(command) if isinstance(command, str) else source_of(command))
    if any(map(says_secret, re.findall(r"[\w-]+", text))):
        text = "..."
    place = code.places.get("command", code.place)
    job.notes.append(f"script.entry: the job runs a script, and not the command `{text}` in {place}")
    if code.get("entry_script") is None:
        job.comments["script", "entry"] = f"fill in; the command is `{text}`"


def _part(call: Made, argument: str, name: str) -> Any:
    value = call.get(argument)
    if isinstance(value, Made):
        return value.get(name)
    return None if value is None else Unknown(f"{argument}.{name}")


def _argument(found: Found, method: str) -> Any:
    call = found.with_.get(method)
    return None if call is None else call.get(next(iter(call.named), ""), 0)
