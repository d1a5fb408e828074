"""The checks of CreateTrainingJob beyond the service's model: those of the service, then those of the local cloud.

tests/localcloud/requests/refused.yaml has the source of each message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from smdp_launch.catalog.tables import table
from smdp_launch.host_counts import SELECTED, host_count
from smdp_launch.localcloud.account import Account
from smdp_launch.localcloud.arns import role_name
from smdp_launch.localcloud.errors import ServiceError, validation
from smdp_launch.localcloud.layout import JOB_NAME
from smdp_launch.localcloud.objects import BUCKET_NAME
from smdp_launch.localcloud.protocol.constraints import absent, report, too_small
from smdp_launch.localcloud.protocol.requests import check_shape, checkpoint_path, split_uri, tensorboard_path
from smdp_launch.localcloud.services import quotas
from smdp_launch.localcloud.services.tags import check_tags

MAX_HOSTS = 254  # addresses 127.A.B.1 to 127.A.B.254
_LONGEST_RUNTIME = 28 * 24 * 3600  # seconds, of any job: StoppingCondition, API reference
_DEFAULT_RUNTIME = 24 * 3600  # seconds, from the same page
_TRUSTED = "sagemaker.amazonaws.com"
_CHANNEL_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ML = PurePosixPath("/opt/ml")
_NO_EVENT_FILES = [_ML / name for name in ("input", "model", "code", "output/data")]
_RESERVED = [_ML / name for name in ("input", "model", "output", "code")]

Request = Mapping[str, Any]


def check_training_job(request: Request, account: Account, region: str) -> None:
    """Raises ServiceError for a request that the service, with this account, or the local cloud refuses."""
    check_shape("CreateTrainingJob", request)
    _check_presence(request)
    check_tags(request.get("Tags", []))
    _check_algorithm(request["AlgorithmSpecification"])
    _check_stopping(request, account)
    _check_resources(request, region)
    _check_channels(request.get("InputDataConfig", []), request["AlgorithmSpecification"]["TrainingInputMode"])
    _check_groups_of_channels(request)
    _check_address(request["OutputDataConfig"]["S3OutputPath"], "OutputDataConfig.S3OutputPath")
    if "CheckpointConfig" in request:
        _check_checkpoints(request["CheckpointConfig"])
    if "TensorBoardOutputConfig" in request:
        _check_tensorboard(request["TensorBoardOutputConfig"])
    check_role(request["RoleArn"], account)
    if "VpcConfig" in request:
        check_network(request["VpcConfig"], account)


def _check_presence(request: Request) -> None:
    """Check for fields that a training job needs although the model, which has other kinds of jobs, does not require
    them."""
    name = request["TrainingJobName"]
    if not JOB_NAME.fullmatch(name):
        raise validation(
            f"1 validation error detected: Value '{name}' at 'trainingJobName' failed to satisfy constraint: "
            f"Member must satisfy regular expression pattern: {JOB_NAME.pattern}"
        )
    needed = ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition")
    missing = [absent(f"{one[:1].lower()}{one[1:]}") for one in needed if one not in request]
    if missing:
        raise validation(report(missing))


def _check_algorithm(algorithm: Request) -> None:
    image, name = algorithm.get("TrainingImage"), algorithm.get("AlgorithmName")
    if (image is None) == (name is None):
        present = "both TrainingImage and AlgorithmName" if image is not None else "no TrainingImage or AlgorithmName"
        raise validation(f"AlgorithmSpecification has {present}; specify one of them.")
    if image == "":
        raise validation(
            "Invalid training image. Please provide a valid Amazon Elastic Container Registry path of the Docker image "
            "to run."
        )


def _check_stopping(request: Request, account: Account) -> None:
    limits, spot = request["StoppingCondition"], bool(request.get("EnableManagedSpotTraining"))
    runtime, wait = limits.get("MaxRuntimeInSeconds", _DEFAULT_RUNTIME), limits.get("MaxWaitTimeInSeconds")
    if runtime > _LONGEST_RUNTIME:
        raise validation(f"Invalid MaxRuntimeInSeconds. It must be less than or equal to {_LONGEST_RUNTIME}")
    if wait is not None and not spot:
        raise validation(
            "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
        )
    if spot and (wait is None or wait < runtime):
        raise validation(
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
        )
    if runtime > account.longest_run:
        raise quotas.too_long(runtime, account.longest_run)


def _check_resources(request: Request, region: str) -> None:
    resources = request["ResourceConfig"]
    for name in SELECTED:
        if name in resources:
            raise validation(f"{name} of ResourceConfig is read-only and not accepted in CreateTrainingJob requests.")
    if resources.get("InstanceGroups"):
        _check_groups(resources, region)
        return
    if resources.get("InstancePreferences"):
        _check_preferences(resources)
        return
    needed = {"InstanceType": "instanceType", "InstanceCount": "instanceCount"}
    faults = [absent(f"resourceConfig.{place}") for name, place in needed.items() if name not in resources]
    if resources.get("InstanceCount", 1) < 1:
        faults.append(too_small(resources["InstanceCount"], "resourceConfig.instanceCount", 1))
    if faults:
        raise validation(report(faults))
    if resources["InstanceCount"] > MAX_HOSTS:
        raise _unsupported(f"more than {MAX_HOSTS} hosts (ResourceConfig.InstanceCount)")
    if resources.get("KeepAlivePeriodInSeconds") and request.get("EnableManagedSpotTraining"):
        raise validation("KeepAlivePeriodInSeconds is not supported when EnableManagedSpotTraining is set to true")
    _check_offered(resources["InstanceType"], region)


def _check_offered(instance_type: str, region: str) -> None:
    if is_not_offered(instance_type, region):
        raise ServiceError(
            "ResourceLimitExceeded",
            f"The requested resource training-job/{instance_type} is not available in this region",
        )


def _check_groups(resources: Request, region: str) -> None:
    beside = [one for one in ("InstanceType", "InstanceCount", "InstancePreferences") if one in resources]
    if beside:
        raise validation(f"{beside[0]} and InstanceGroups of ResourceConfig exclude each other.")
    if resources.get("KeepAlivePeriodInSeconds"):
        raise validation("KeepAlivePeriodInSeconds is not supported for a heterogeneous cluster.")
    named = [one["InstanceGroupName"] for one in resources["InstanceGroups"]]
    if len(set(named)) < len(named):
        raise validation("Two of the InstanceGroups of ResourceConfig have the same InstanceGroupName.")
    for index, one in enumerate(resources["InstanceGroups"], 1):
        if one["InstanceCount"] < 1:
            place = f"resourceConfig.instanceGroups.{index}.member.instanceCount"
            raise validation(report([too_small(one["InstanceCount"], place, 1)]))
        _check_offered(one["InstanceType"], region)
    if host_count(resources) > MAX_HOSTS:
        raise _unsupported(f"more than {MAX_HOSTS} hosts (ResourceConfig.InstanceGroups)")


def _check_preferences(resources: Request) -> None:
    if "InstanceType" in resources:
        raise validation("InstanceType and InstancePreferences of ResourceConfig exclude each other.")
    for index, one in enumerate(resources["InstancePreferences"], 1):
        count = one.get("InstanceCount", resources.get("InstanceCount", 0))
        if count < 1:
            place = f"resourceConfig.instancePreferences.{index}.member.instanceCount"
            raise validation(report([too_small(count, place, 1)]))
        if count > MAX_HOSTS:
            raise _unsupported(f"more than {MAX_HOSTS} hosts (ResourceConfig.InstancePreferences)")


def is_not_offered(instance_type: str, region: str) -> bool:
    """Whether the catalogue is certain that the region does not have the type. It has no data for most regions."""
    rows: list[dict[str, Any]] = table("regions")["offerings"]
    found = (one for one in rows if one["instance_type"] == instance_type and region in one["regions"])
    return any(one["certain"] and not one["offered"] for one in found)


def _check_channels(channels: list[Request], default_mode: str) -> None:
    names = [channel["ChannelName"] for channel in channels]
    for name in names:
        if not _CHANNEL_NAME.fullmatch(name) or name in (".", ".."):
            raise validation(f"{name!r} is not a channel name.")
        if names.count(name) > 1:
            raise validation(f"The channel name {name!r} is used twice.")
    for channel in channels:
        _check_channel(channel, default_mode)


def _check_groups_of_channels(request: Request) -> None:
    known = {one["InstanceGroupName"] for one in request["ResourceConfig"].get("InstanceGroups", [])}
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"].get("S3DataSource", {})
        unknown = [one for one in source.get("InstanceGroupNames", []) if one not in known]
        if unknown:
            raise validation(
                f"InstanceGroupNames of the channel {channel['ChannelName']!r} has {unknown[0]!r}, which is not one of "
                "the InstanceGroups of ResourceConfig."
            )


def _check_channel(channel: Request, default_mode: str) -> None:
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
    _check_address(source["S3Uri"], where)


def _check_checkpoints(config: Request) -> None:
    path = checkpoint_path(config)
    if _ML not in path.parents or ".." in path.parts:
        raise _unsupported(f"CheckpointConfig.LocalPath {str(path)!r}; only folders below {_ML}")
    if any(path == folder or folder in path.parents for folder in _RESERVED):
        raise validation(f"CheckpointConfig.LocalPath {str(path)!r} overlaps a folder that the platform fills.")
    _check_address(config["S3Uri"], "CheckpointConfig.S3Uri")


def _check_tensorboard(config: Request) -> None:
    path = tensorboard_path(config)
    if _ML not in path.parents or ".." in path.parts:
        raise _unsupported(f"TensorBoardOutputConfig.LocalPath {str(path)!r}; only folders below {_ML}")
    if path == _ML / "output" or any(path == folder or folder in path.parents for folder in _NO_EVENT_FILES):
        raise validation(f"TensorBoardOutputConfig.LocalPath {str(path)!r} overlaps a folder that the platform fills.")
    _check_address(config["S3OutputPath"], "TensorBoardOutputConfig.S3OutputPath")


def _check_address(uri: str, where: str) -> None:
    bucket, _ = split_uri(uri, where)
    if not BUCKET_NAME.fullmatch(bucket):
        raise validation(
            f"Invalid bucket name {bucket!r} in {where}: give 3 to 63 lowercase letters, digits, dots and hyphens."
        )


def check_role(arn: str, account: Account) -> None:
    """Check the role against `account.yaml`. Without the file any role of any account exists, since job files name
    the roles of real accounts."""
    if account.role_account not in (None, arn.split(":")[4]):
        raise ServiceError("AccessDeniedException", "Cross-account pass role is not allowed.")
    if account.roles is None:
        return
    role = account.roles.get(role_name(arn))
    if role is None or _TRUSTED not in role.trusts:
        raise validation(
            f"Could not assume role {arn}. Please ensure that the role exists and allows principal '{_TRUSTED}' to "
            "assume the role."
        )


def check_network(config: Request, account: Account) -> None:
    """Check the ids where `account.yaml` lists subnets or groups. Job files name the ids of real accounts."""
    vpcs = set()
    if account.lists("subnets"):
        for name in config["Subnets"]:
            if name not in account.subnets:
                raise validation(f"The subnet ID '{name}' does not exist")
        vpcs = {account.subnets[name].vpc for name in config["Subnets"]}
        if len(vpcs) > 1:
            raise validation(f"Subnets of different VPCs: {', '.join(sorted(vpcs))}. Subnets must be in the same VPC.")
    if account.lists("security_groups"):
        for name in config["SecurityGroupIds"]:
            if name not in account.security_groups:
                raise validation(f"The security group '{name}' does not exist")
            if vpcs and account.security_groups[name].vpc not in vpcs:
                subnet = config["Subnets"][0]
                raise validation(f"Security group {name} and subnet {subnet} belong to different networks.")


def _unsupported(what: str) -> ServiceError:
    return validation(f"The local cloud does not support {what}.")
