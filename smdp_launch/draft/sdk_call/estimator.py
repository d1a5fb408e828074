"""A job from an estimator of the SageMaker Python SDK, version 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from smdp_launch.catalog.instances import instance
from smdp_launch.draft.sdk_call.channels import put_inputs
from smdp_launch.draft.sdk_call.find import Found
from smdp_launch.draft.sdk_call.job import At, SdkJob, known_texts, shortened, source_of
from smdp_launch.draft.sdk_call.values import Made

#: Arguments whose values the job file takes as they are, with the names of version 1 of the SDK.
_PLAIN: dict[str, At] = {
    "entry_point": ("script", "entry"),
    "instance_type": ("compute", "instance_type"),
    "train_instance_type": ("compute", "instance_type"),
    "output_kms_key": ("encryption", "output_key"),
    "volume_kms_key": ("encryption", "volume_key"),
    "train_volume_kms_key": ("encryption", "volume_key"),
    "enable_network_isolation": ("network", "isolated"),
    "encrypt_inter_container_traffic": ("network", "encrypt_traffic"),
    "checkpoint_local_path": ("checkpoint", "path"),
    "transformers_version": ("framework", "transformers"),
}
_NUMBERS: dict[str, At] = {
    "instance_count": ("compute", "instance_count"),
    "train_instance_count": ("compute", "instance_count"),
    "volume_size": ("compute", "volume_gb"),
    "train_volume_size": ("compute", "volume_gb"),
    "max_run": ("compute", "max_run"),
    "train_max_run": ("compute", "max_run"),
    "keep_alive_period_in_seconds": ("compute", "keep_alive"),
    "max_retry_attempts": ("compute", "retries"),
}


def read_estimator(found: Found) -> SdkJob:
    """The job, without its framework, source folder and name, which depend on more than the call."""
    call, job = found.made, SdkJob()
    job.image(call.get("image_uri") or call.get("image_name"))
    for name, at in _PLAIN.items():
        value = call.get(name)
        job.put(at, None if value is False else value)
    for name, at in _NUMBERS.items():
        job.put_number(at, call.get(name))
    put_groups(job, call.get("instance_groups"), call.get("distribution"))
    job.role(call.get("role"))
    job.hyperparameters(call.get("hyperparameters") or {})
    if call.name == "TensorFlow":
        _model_dir(job, call)
    job.place(("output", "s3"), call.get("output_path"), "output")
    if job.is_on(("output", "compression"), call.get("disable_output_compression")):
        job.values["output", "compression"] = "none"
    if call.get("checkpoint_s3_uri"):
        job.checkpoints(call.get("checkpoint_s3_uri"))
    elif job.values.pop(("checkpoint", "path"), None):
        job.notes.append("checkpoint is not set: without checkpoint_s3_uri, the SDK sends no checkpoint_local_path")
    if job.is_on(("spot",), call.get("use_spot_instances") or call.get("train_use_spot_instances")):
        put_spot(job, call.get("max_wait") or call.get("train_max_wait"))
    put_network(job, call.get("subnets"), call.get("security_group_ids"))
    put_texts(job, "environment", call.get("environment"))
    put_texts(job, "tags", pairs(job, "tags", call.get("tags"), "Key", "Value"))
    put_texts(job, "metrics", pairs(job, "metrics", call.get("metric_definitions"), "Name", "Regex"))
    put_inputs(job, found)
    note_starts(job, found, "fit")
    return job


def _model_dir(job: SdkJob, call: Made) -> None:
    """The hyperparameter that the SDK adds to those of a TensorFlow script."""
    at, given = ("script", "hyperparameters", "model_dir"), call.get("model_dir")
    if given is not None and given is not False:
        job.hyperparameters({"model_dir": given})
    elif given is None and at not in job.values:
        where = "/opt/ml/model" if enabled_distribution(call) == "mpi" else "an S3 location"
        job.notes.append(
            f"model_dir is not set: the SDK passes {where} under this name; set script.hyperparameters.model_dir, "
            "or save to SM_MODEL_DIR"
        )


def put_groups(job: SdkJob, given: Any, switch: Any = None) -> None:
    """Set the hosts of the groups ``given``: those of the group in the distribution ``switch`` train."""
    if given is None:
        return
    known = [_group(one) for one in given] if isinstance(given, list) else []
    named = switch.get("instance_groups") if isinstance(switch, Mapping) else None
    training = _group(named[0]) if isinstance(named, list) and len(named) == 1 else None
    if training is None and known:
        training = next((one for one in known if one is not None and instance(one[1]) is not None), known[0])
    if training is None or None in known or training not in known:
        job.notes.append(
            f"compute.other_groups is not set: `{shortened(source_of(given))}` cannot be read from the file"
        )
        return
    name, job.values["compute", "instance_type"], job.values["compute", "instance_count"] = training
    others = [one for one in known if one is not None and one != training]
    if not others:
        return
    job.values["compute", "group_name"] = name
    for other, kind, count in others:
        job.values["compute", "other_groups", other] = {"instance_type": kind, "instance_count": count}
    if not named:
        job.notes.append(f"the group {name} trains: the call names no group in its distribution")


def _group(value: Any) -> tuple[str, str, int] | None:
    """The name, type and number of hosts of an ``InstanceGroup``; None if they cannot be read from the file."""
    if not isinstance(value, Made):
        return None
    name = value.get("instance_group_name", 0)
    kind, count = value.get("instance_type", 1), value.get("instance_count", 2)
    is_read = isinstance(name, str) and isinstance(kind, str) and isinstance(count, int)
    return (name, kind, count) if is_read else None


def distribution_of(found: Found) -> tuple[str | None, Any]:
    """The engine that the call's ``distribution`` means, and mpirun's options; None without them."""
    switch = found.made.get("distribution") or found.made.get("distributions")
    if not isinstance(switch, Mapping):
        return None, None
    library = switch.get("smdistributed")
    parallel = library.get("dataparallel") if isinstance(library, Mapping) else None
    engines = {"smdistributed": parallel or switch.get("pytorchddp"), "nccl": switch.get("torch_distributed")}
    for engine, chosen in engines.items():
        if isinstance(chosen, Mapping) and chosen.get("enabled") is True:
            return engine, chosen.get("custom_mpi_options") or None
    return None, None


def enabled_distribution(call: Made) -> str | None:
    """The name of the call's distribution, such as ``mpi`` or ``smdistributed.modelparallel``; None without one."""
    switch = call.get("distribution") or call.get("distributions")
    for name, one in switch.items() if isinstance(switch, Mapping) else ():
        inner = one.items() if name == "smdistributed" and isinstance(one, Mapping) else [(None, one)]
        for part, options in inner:
            if isinstance(options, Mapping) and options.get("enabled") is True:
                return f"{name}.{part}" if part else str(name)
    return None


def put_spot(job: SdkJob, wait: Any) -> None:
    at = ("spot", "max_wait")
    if isinstance(wait, int):
        job.values[at] = wait
        return
    run = job.values.get(("compute", "max_run"))
    job.values[at] = (run if isinstance(run, int) else 86400) + 3600
    job.comments[at] = "max_run and one hour to wait for capacity"
    if wait is not None:
        job.notes.append(f"spot.max_wait is {job.values[at]}: `{source_of(wait)}` cannot be read from the file")


def put_network(job: SdkJob, subnets: Any, groups: Any) -> None:
    for name, value in (("subnets", subnets), ("security_groups", groups)):
        listed = known_texts(value)
        if value is not None and listed is None:
            job.notes.append(f"network.{name} is not set: `{source_of(value)}` cannot be read from the file")
        elif listed is not None:
            job.values["network", name] = listed


def put_texts(job: SdkJob, section: str, values: Any) -> None:
    """Set the entries of ``environment``, ``tags`` or ``metrics``."""
    if values is None:
        return
    if not isinstance(values, Mapping):
        job.not_set((section,), values)
        return
    for name, value in values.items():
        at = (section, str(name))
        if not job.leaves_out(at, value):
            job.put(at, str(value) if isinstance(value, int | float) else value)


def pairs(job: SdkJob, section: str, value: Any, key: str, content: str) -> Any:
    """A list of entries such as ``{"Key": ..., "Value": ...}`` or ``Tag(key=..., value=...)`` as one mapping."""
    if not isinstance(value, list):
        return value
    result: dict[str, Any] = {}
    for one in value:
        name = one.get(key) if isinstance(one, Mapping | Made) else None
        if isinstance(one, Mapping | Made) and isinstance(name, str):
            given = one.get(content)
            result[name] = "" if given is None else given
        else:
            job.notes.append(f"{section} may lack entries: `{source_of(one)}` cannot be read from the file")
    return result


def note_starts(job: SdkJob, found: Found, method: str) -> None:
    """Note that several calls may start the job, so that none is used."""
    if len(found.starts) > 1:
        job.notes.append(
            f"channels are not set: the calls of {method}() are in {', '.join(found.starts)}; "
            "add the inputs of this job under channels"
        )
