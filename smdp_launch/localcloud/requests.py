"""What a CreateTrainingJob request must be for the local cloud to run it: the service's own shape first, then what
the service checks beyond its shape, then what only this machine cannot do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.utils import parse_to_aware_datetime
from botocore.validate import ParamValidator

from smdp_launch.localcloud.constraints import report, violations
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.layout import JOB_NAME

Parameters = Mapping[str, Any]
Action = Callable[[Parameters], Mapping[str, Any]]

MAX_HOSTS = 254  # addresses 127.A.B.1 to 127.A.B.254
_CHANNEL_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ML = PurePosixPath("/opt/ml")
_RESERVED = [_ML / name for name in ("input", "model", "output", "code")]


@lru_cache(maxsize=16)
def service_model(service: str) -> ServiceModel:
    # Only the models that botocore ships: the user's ~/.aws/models must not change what is valid.
    loader = Loader(extra_search_paths=[Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)
    return ServiceModel(loader.load_service_model(service, "service-2"))


def check_shape(operation: str, parameters: Mapping[str, Any], service: str = "sagemaker") -> None:
    """Required members, types, unknown members and lower bounds, in botocore's words; then the rest of what the
    service's model says of values, in the service's."""
    shape = service_model(service).operation_model(operation).input_shape
    if shape is None:
        return
    try:
        found = ParamValidator().validate(parameters, shape)
    except (OverflowError, RuntimeError):  # botocore at a time that no calendar has
        raise validation("Parameter validation failed: a time is out of range.") from None
    if found.has_errors():
        raise validation(found.generate_report())
    broken = list(violations(shape, parameters))
    if broken:
        raise validation(report(broken))


def checked(service: str, *calls: Action) -> dict[str, Action]:
    """The calls by their names, each given only what the service's model (botocore's name of it) allows, and times as
    seconds since 1970, however they were sent."""

    def check(call: Action) -> Action:
        def asked(parameters: Parameters) -> Mapping[str, Any]:
            check_shape(call.__name__, parameters, service)
            shape = service_model(service).operation_model(call.__name__).input_shape
            seconds: Parameters = with_times(shape, parameters, _seconds)
            return call(seconds)

        return asked

    return {call.__name__: check(call) for call in calls}


def with_times(shape: Any, value: Any, convert: Callable[[Any], float]) -> Any:
    """The same value with what its shape says is a time converted."""
    if shape is None or value is None:
        return value
    if shape.type_name == "structure":
        return {name: with_times(shape.members.get(name), one, convert) for name, one in value.items()}
    if shape.type_name == "list":
        return [with_times(shape.member, one, convert) for one in value]
    return convert(value) if shape.type_name == "timestamp" else value


def _seconds(time: Any) -> float:
    seconds: float = time if isinstance(time, int | float) else parse_to_aware_datetime(time).timestamp()
    return seconds


def check_training_job(request: Mapping[str, Any]) -> None:
    check_shape("CreateTrainingJob", request)
    name = request["TrainingJobName"]
    if not JOB_NAME.fullmatch(name):
        raise validation(
            f"1 validation error detected: Value '{name}' at 'trainingJobName' failed to satisfy constraint: "
            f"Member must satisfy regular expression pattern: {JOB_NAME.pattern}"
        )
    for member in ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition"):
        if member not in request:
            raise validation(f"{member} is required for a training job.")
    _check_algorithm(request["AlgorithmSpecification"])
    _check_resources(request["ResourceConfig"])
    _check_channels(request.get("InputDataConfig", []), request["AlgorithmSpecification"]["TrainingInputMode"])
    split_uri(request["OutputDataConfig"]["S3OutputPath"], "OutputDataConfig.S3OutputPath")
    if "CheckpointConfig" in request:
        _check_checkpoints(request["CheckpointConfig"])


def split_uri(uri: str, where: str = "the address") -> tuple[str, str]:
    """Bucket and key (or prefix, possibly empty) of an S3 address."""
    parts = urlsplit(uri)
    if parts.scheme != "s3" or not parts.netloc:
        raise validation(f"{where} must be an S3 address such as s3://bucket/prefix, not {uri!r}.")
    return parts.netloc, uri.removeprefix(f"s3://{parts.netloc}").removeprefix("/")


def checkpoint_path(config: Mapping[str, Any]) -> PurePosixPath:
    return PurePosixPath(config.get("LocalPath") or "/opt/ml/checkpoints")


def _check_algorithm(algorithm: Mapping[str, Any]) -> None:
    if "TrainingImage" not in algorithm and "AlgorithmName" not in algorithm:
        raise validation("AlgorithmSpecification needs a TrainingImage.")
    _check_input_mode(algorithm["TrainingInputMode"], "AlgorithmSpecification.TrainingInputMode")


def _check_input_mode(mode: str, where: str) -> None:
    if mode == "Pipe":
        raise _unsupported(f"Pipe input ({where}); use File or FastFile")
    if mode not in ("File", "FastFile"):
        raise validation(f"{where} must be one of File, FastFile, Pipe, not {mode!r}.")


def _check_resources(resources: Mapping[str, Any]) -> None:
    if resources.get("InstanceGroups"):
        raise _unsupported("ResourceConfig.InstanceGroups; give InstanceType and InstanceCount")
    for member in ("InstanceType", "InstanceCount"):
        if member not in resources:
            raise validation(f"ResourceConfig.{member} is required.")
    if not 1 <= resources["InstanceCount"] <= MAX_HOSTS:
        raise validation(f"ResourceConfig.InstanceCount must be between 1 and {MAX_HOSTS} here.")


def _check_channels(channels: list[Mapping[str, Any]], default_mode: str) -> None:
    names = [channel["ChannelName"] for channel in channels]
    for name in names:
        if not _CHANNEL_NAME.fullmatch(name) or name in (".", ".."):
            raise validation(f"{name!r} is not a channel name.")
        if names.count(name) > 1:
            raise validation(f"The channel name {name!r} is used twice.")
    for channel in channels:
        _check_channel(channel, default_mode)


def _check_channel(channel: Mapping[str, Any], default_mode: str) -> None:
    where = f"channel {channel['ChannelName']!r}"
    if len(channel["DataSource"]) > 1:
        raise validation(f"{where} must have one data source.")
    if "FileSystemDataSource" in channel["DataSource"]:
        mode = channel.get("InputMode", default_mode)
        if mode != "File":
            raise validation(f"The input mode of {where}, a file system, must be File, not {mode}.")
        return
    source = channel["DataSource"].get("S3DataSource")
    if source is None:
        raise _unsupported(f"the data source of {where}; only S3DataSource and FileSystemDataSource")
    if source["S3DataType"] != "S3Prefix":
        raise _unsupported(f"S3DataType {source['S3DataType']!r} of {where}; only S3Prefix")
    if "InputMode" in channel:
        _check_input_mode(channel["InputMode"], where)
    split_uri(source["S3Uri"], where)


def _check_checkpoints(config: Mapping[str, Any]) -> None:
    split_uri(config["S3Uri"], "CheckpointConfig.S3Uri")
    path = checkpoint_path(config)
    if _ML not in path.parents or ".." in path.parts:
        raise _unsupported(f"CheckpointConfig.LocalPath {str(path)!r}; only folders below {_ML}")
    if any(path == folder or folder in path.parents for folder in _RESERVED):
        raise validation(f"CheckpointConfig.LocalPath {str(path)!r} overlaps a folder that the platform fills.")


def _unsupported(what: str) -> ServiceError:
    return validation(f"The local cloud does not support {what}.")
