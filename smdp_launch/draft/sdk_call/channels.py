"""The channels of a job from the inputs of an estimator's ``fit`` or a trainer's ``train``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from smdp_launch.draft.sdk_call.find import Found
from smdp_launch.draft.sdk_call.job import SdkJob, is_known, source_of
from smdp_launch.draft.sdk_call.values import LOST, Made, Unknown

#: The order of the arguments of ``TrainingInput`` (sagemaker 2.257.7), with their keys in a channel.
_TRAINING_INPUT = {
    "distribution": "distribution",
    "compression": "compression",
    "content_type": "content_type",
    "record_wrapping": "record_wrapping",
    "s3_data_type": "data_type",
    "instance_groups": "groups",
    "input_mode": "mode",
    "attribute_names": "attributes",
    "target_attribute_name": None,
    "shuffle_config": "shuffle",
}
#: The arguments of version 3 for a channel in S3: those of its location, and those of the channel.
_S3_DATA_SOURCE = {
    "s3_data_distribution_type": "distribution",
    "s3_data_type": "data_type",
    "instance_group_names": "groups",
    "attribute_names": "attributes",
}
_CHANNEL = {
    "compression_type": "compression",
    "content_type": "content_type",
    "record_wrapper_type": "record_wrapping",
    "input_mode": "mode",
    "shuffle_config": "shuffle",
}
#: The SDK's classes of channels from a file system.
_FILE_SYSTEMS = ("FileSystemInput", "FileSystemDataSource", "file_system_input")
_DEFAULTS = (None, "None", "File", "FullyReplicated", "S3Prefix")


def put_inputs(job: SdkJob, found: Found) -> None:
    """Set the channels of an estimator."""
    for name, value in _inputs(job, found).items():
        if _is_file_system(value):
            _file_system(job, name, value)
        elif isinstance(value, Made):
            location = value.get("s3_data", 0) or value.get("s3_uri") or Unknown(source_of(value))
            # Version 1 of the SDK has no groups.
            order = [one for one in _TRAINING_INPUT if one != "instance_groups" or value.name != "s3_input"]
            more = {key: value.get(one, at) for at, one in enumerate(order, 1) if (key := _TRAINING_INPUT[one])}
            _s3(job, found, name, location, more)
        else:
            _s3(job, found, name, value, {})


def put_input_data(job: SdkJob, found: Found) -> None:
    """Set the channels of a trainer."""
    for name, channel in _input_data(job, found).items():
        source = channel.get("data_source")
        for part in ("s3_data_source", "file_system_data_source"):
            if isinstance(source, Made) and part in source.named:
                source = source.get(part)
        if _is_file_system(source):
            _file_system(job, name, source)
            mode = channel.get("input_mode")
            if mode not in _DEFAULTS:
                job.notes.append(f"channels.{name}.mode is not set: a channel from a file system has no mode")
            continue
        more = {key: channel.get(one) for one, key in _CHANNEL.items()}
        location = source
        if isinstance(source, Made):
            location = source.get("s3_uri") or Unknown(source_of(source))
            more |= {key: source.get(one) for one, key in _S3_DATA_SOURCE.items()}
        _s3(job, found, name, location, more)


def _inputs(job: SdkJob, found: Found) -> Mapping[str, Any]:
    """The channels of ``fit``: version 2 calls a single one ``training``."""
    if found.started is None:
        return {}
    inputs = found.started.get("inputs", 0)
    if isinstance(inputs, Mapping):
        known = {str(name): one for name, one in inputs.items() if not str(name).startswith(LOST)}
        if len(known) < len(inputs):
            _note_channels(job, found, "fit", some=bool(known))
        return known
    is_spread = inputs is None and any(one.startswith("*") for one in found.started.named)
    # An upload returns one location. Any other expression can be a mapping of channels.
    if is_spread or (isinstance(inputs, Unknown) and not re.search(r"\bupload\w*\(", inputs.source)):
        _note_channels(job, found, "fit")
        return {}
    return {} if inputs is None else {"training": inputs}


def _input_data(job: SdkJob, found: Found) -> dict[str, Made]:
    started = found.started.get("input_data_config", 0) if found.started is not None else None
    channels: dict[str, Made] = {}
    is_lost = found.started is not None and any(one.startswith("*") for one in found.started.named)
    for listed in (found.made.get("input_data_config"), started):
        is_lost |= listed is not None and not isinstance(listed, list)
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, Made) and isinstance(name := one.get("channel_name"), str):
                channels[name] = one
            else:
                is_lost = True
    if is_lost:
        _note_channels(job, found, "train", some=bool(channels))
    return channels


def _note_channels(job: SdkJob, found: Found, method: str, some: bool = False) -> None:
    are = "some channels are" if some else "channels are"
    job.notes.append(
        f"{are} not set: the inputs of {method}() in {found.starts[0]} cannot be read from the file; "
        "add them under channels"
    )


def _s3(job: SdkJob, found: Found, name: str, location: Any, more: dict[str, Any]) -> None:
    job.place(("channels", name, "s3"), location, name)
    shuffled = more.get("shuffle")
    if isinstance(shuffled, Made):
        more["shuffle"] = shuffled.get("seed", 0)
    job_mode = found.made.get("training_input_mode") or found.made.get("input_mode")
    more["mode"] = more.get("mode") or job_mode
    for key, one in more.items():
        if one in _DEFAULTS:
            continue
        if is_known(one):
            job.values["channels", name, key] = one
        else:
            job.not_set(("channels", name, key), one)


def _is_file_system(value: Any) -> bool:
    return isinstance(value, Made) and ("file_system_id" in value.named or value.name in _FILE_SYSTEMS)


def _file_system(job: SdkJob, name: str, value: Made) -> None:
    type_ = value.get("file_system_type", 1)
    if not isinstance(type_, str):
        job.not_set(("channels", name, "fsx"), type_)
    job.put(("channels", name, "fsx" if type_ == "FSxLustre" else "efs"), value.get("file_system_id", 0))
    job.put(("channels", name, "path"), value.get("directory_path", 2))
    access = value.get("file_system_access_mode", 3)
    job.put(("channels", name, "access"), None if access == "ro" else access)
