"""A job from an estimator of the SageMaker Python SDK, version 2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from smdp_launch.catalog.instances import instance
from smdp_launch.draft.sdk_call.find import Found
from smdp_launch.draft.sdk_call.job import At, SdkJob, is_known, known_texts, shortened, source_of
from smdp_launch.draft.sdk_call.values import LOST, Made, Unknown

#: Arguments whose values the job file takes as they are, with the names of version 1 of the SDK.
_PLAIN: dict[str, At] = {
    "image_uri": ("image",),
    "image_name": ("image",),
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
_READ = frozenset(
    {
        *("role", "source_dir", "hyperparameters", "framework_version", "pytorch_version", "tensorflow_version"),
        *("py_version", "output_path", "checkpoint_s3_uri", "use_spot_instances", "train_use_spot_instances"),
        *("max_wait", "train_max_wait", "subnets", "security_group_ids", "environment", "tags"),
        *("metric_definitions", "base_job_name", "distribution", "distributions", "disable_output_compression"),
        *("input_mode", "sagemaker_session", "instance_groups", "model_dir"),
    }
)
#: The SDK's classes of channels from a file system.
_FILE_SYSTEMS = ("FileSystemInput", "FileSystemDataSource", "file_system_input")
#: Arguments that say what the launcher does anyway, or that have no effect on a job.
_WITHOUT_EFFECT = frozenset({"disable_profiler", "debugger_hook_config", "container_log_level", "profiler_config"})


def read_estimator(found: Found) -> SdkJob:
    """The job, without its framework, source folder and name, which depend on more than the call."""
    call, job = found.made, SdkJob()
    for name, at in _PLAIN.items():
        value = call.get(name)
        job.put(at, None if value is False else value)
    for name, at in _NUMBERS.items():
        job.put_number(at, call.get(name))
    put_groups(job, call)
    job.role(call.get("role"))
    job.hyperparameters(call.get("hyperparameters") or {})
    if call.name == "TensorFlow":
        _model_dir(job, call)
    job.place(("output", "s3"), call.get("output_path"), "output")
    if call.get("disable_output_compression") is True:
        job.values["output", "compression"] = "none"
    if call.get("checkpoint_s3_uri") is not None:
        job.place(("checkpoint", "s3"), call.get("checkpoint_s3_uri"), "checkpoints")
    if (call.get("use_spot_instances") or call.get("train_use_spot_instances")) is True:
        put_spot(job, call.get("max_wait") or call.get("train_max_wait"))
    put_network(job, call.get("subnets"), call.get("security_group_ids"))
    put_texts(job, "environment", call.get("environment"))
    put_texts(job, "tags", _pairs(call.get("tags"), "Key", "Value"))
    put_texts(job, "metrics", _pairs(call.get("metric_definitions"), "Name", "Regex"))
    put_channels(job, _inputs(job, found), call.get("input_mode"))
    note_starts(job, found, "fit")
    _note_rest(job, call)
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


def put_groups(job: SdkJob, call: Made) -> None:
    """Set the hosts of ``instance_groups``: those of the distribution's group train."""
    given = call.get("instance_groups")
    if given is None:
        return
    known = [_group(one) for one in given] if isinstance(given, list) else []
    switch = call.get("distribution")
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


def distribution_of(found: Found) -> tuple[str | None, str]:
    """The engine that the call's ``distribution`` means, and mpirun's options; None without a known one."""
    switch = found.made.get("distribution") or found.made.get("distributions")
    if not isinstance(switch, Mapping):
        return None, ""
    library = switch.get("smdistributed")
    parallel = library.get("dataparallel") if isinstance(library, Mapping) else None
    if isinstance(parallel, Mapping) and parallel.get("enabled") is True:
        options = parallel.get("custom_mpi_options")
        return "smdistributed", options if isinstance(options, str) else ""
    for name in ("torch_distributed", "pytorchddp", "pytorch_ddp"):
        chosen = switch.get(name)
        if isinstance(chosen, Mapping) and chosen.get("enabled") is True:
            return "nccl", ""
    return None, ""


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
    if isinstance(wait, int):
        job.values["spot", "max_wait"] = wait
    else:
        job.values["spot", "max_wait"] = int(job.values.get(("compute", "max_run"), 86400)) + 3600
        job.comments["spot", "max_wait"] = "max_run and one hour to wait for capacity"


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
        job.put((section,), values)
        return
    for name, value in values.items():
        at = (section, str(name))
        if not job.leaves_out(at, value):
            job.put(at, str(value) if isinstance(value, int | float) else value)


def _pairs(value: Any, key: str, content: str) -> Any:
    """A list of mappings such as ``{"Key": ..., "Value": ...}`` as one mapping."""
    if not isinstance(value, list):
        return value
    pairs = [one for one in value if isinstance(one, Mapping) and isinstance(one.get(key), str)]
    return {one[key]: one.get(content, "") for one in pairs}


def _inputs(job: SdkJob, found: Found) -> Mapping[str, Any]:
    """The channels of ``fit``: version 2 calls a single one ``training``."""
    if found.started is None:
        return {}
    inputs = found.started.get("inputs", 0)
    if isinstance(inputs, Mapping):
        known = {str(name): one for name, one in inputs.items() if not str(name).startswith(LOST)}
        if len(known) < len(inputs):
            note_channels(job, found, "fit", some=bool(known))
        return known
    is_spread = inputs is None and any(one.startswith(LOST) for one in found.started.named)
    # An upload returns one location. Any other expression can be a mapping of channels.
    if is_spread or (isinstance(inputs, Unknown) and not re.search(r"\bupload\w*\(", inputs.source)):
        note_channels(job, found, "fit")
        return {}
    return {} if inputs is None else {"training": inputs}


def note_channels(job: SdkJob, found: Found, method: str, some: bool = False) -> None:
    are = "some channels are" if some else "channels are"
    job.notes.append(
        f"{are} not set: the inputs of {method}() in {found.starts[0]} cannot be read from the file; "
        "add them under channels"
    )


def note_starts(job: SdkJob, found: Found, method: str) -> None:
    """Note that several calls may start the job, so that none is used."""
    if len(found.starts) > 1:
        job.notes.append(
            f"channels are not set: the calls of {method}() are in {', '.join(found.starts)}; "
            "add the inputs of this job under channels"
        )


def put_channels(job: SdkJob, channels: Mapping[str, Any], mode: Any = None) -> None:
    """Set the channels. A channel is a location, or an object of the SDK with one."""
    for name, value in channels.items():
        if isinstance(value, Made) and ("file_system_id" in value.named or value.name in _FILE_SYSTEMS):
            _file_system(job, name, value)
            continue
        location, more = value, {}
        if isinstance(value, Made):
            location = value.get("s3_data", 0) or value.get("s3_uri", 0) or Unknown(source_of(value))
            more = {
                "mode": value.get("input_mode"),
                "distribution": value.get("distribution"),
                "data_type": value.get("s3_data_type"),
                "content_type": value.get("content_type"),
                "compression": value.get("compression"),
                "record_wrapping": value.get("record_wrapping"),
                "attributes": value.get("attribute_names"),
                "groups": value.get("instance_groups"),
            }
        job.place(("channels", name, "s3"), location, name)
        more["mode"] = more.get("mode") or mode
        for key, one in more.items():
            if one not in (None, "None", "File", "FullyReplicated", "S3Prefix") and is_known(one):
                job.values["channels", name, key] = one


def _file_system(job: SdkJob, name: str, value: Made) -> None:
    kind = "fsx" if value.get("file_system_type", 1) == "FSxLustre" else "efs"
    job.put(("channels", name, kind), value.get("file_system_id", 0))
    job.put(("channels", name, "path"), value.get("directory_path", 2))
    access = value.get("file_system_access_mode", 3)
    if access == "rw":
        job.values["channels", name, "access"] = access


def _note_rest(job: SdkJob, call: Made) -> None:
    known = {*_PLAIN, *_NUMBERS, *_READ, *_WITHOUT_EFFECT}
    rest = sorted(name for name, value in call.named.items() if name not in known and value not in (None, False))
    if rest:
        job.notes.append(f"not taken over: {', '.join(rest)}")
