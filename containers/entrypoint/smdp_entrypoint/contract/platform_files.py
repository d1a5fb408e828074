"""Reads the JSON files in which the platform describes the job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smdp_entrypoint.contract.errors import ContractError
from smdp_entrypoint.contract.hyperparameters import Hyperparameters
from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.contract.settings import short_repr

# The AWS toolkit's defaults where the file lacks a value (older platforms, local mode).
DEFAULT_GROUP = "homogeneousCluster"
DEFAULT_INTERFACE = "eth0"
NO_INSTANCE_TYPE = "local"
# Far above the platform's limits for hyperparameters and lists of hosts.
_LONGEST_FILE = 16 * 1024 * 1024


@dataclass(frozen=True)
class ResourceConfig:
    """resourceconfig.json; `raw` is the whole file, `interface` is None where the file names none."""

    raw: dict[str, Any]
    hosts: list[str]
    current_host: str
    instance_type: str
    group: str
    groups: list[dict[str, Any]]
    interface: str | None
    topology: list[Any]

    def group_hosts(self, name: str) -> list[str]:
        return [host for group in self.groups if group["instance_group_name"] == name for host in group["hosts"]]


@dataclass(frozen=True)
class Contract:
    """All that the platform's files say. `channels` is inputdataconfig.json; `checkpoints` is the local folder that the
    platform synchronizes with S3, or its default path in a job without one."""

    resources: ResourceConfig
    hyperparameters: Hyperparameters
    channels: dict[str, Any]
    checkpoints: Path


def read_contract(tree: MlTree) -> Contract:
    resources = read_resources(tree)
    return Contract(
        resources=resources,
        hyperparameters=Hyperparameters.decode(_read_object(tree.config / "hyperparameters.json")),
        channels=_read_object(tree.config / "inputdataconfig.json"),
        checkpoints=_checkpoints(tree),
    )


def read_resources(tree: MlTree) -> ResourceConfig:
    path = tree.config / "resourceconfig.json"
    raw = _read_object(path, required=True)
    hosts: Any = raw.get("hosts")
    if not _is_names(hosts):
        raise ContractError(f'{path}: "hosts" must be a list of different host names, found {short_repr(hosts)}.')
    current: Any = raw.get("current_host")
    if current not in hosts:
        raise ContractError(
            f'{path}: "current_host" is {short_repr(current)}, which is not one of the hosts {short_repr(hosts)}.'
        )
    return ResourceConfig(
        raw=raw,
        hosts=hosts,
        current_host=current,
        instance_type=_text(raw, "current_instance_type", path) or NO_INSTANCE_TYPE,
        group=_text(raw, "current_group_name", path) or DEFAULT_GROUP,
        groups=_groups(raw, hosts, path),
        interface=_text(raw, "network_interface_name", path),
        topology=raw.get("topology") or [],
    )


def _groups(raw: dict[str, Any], hosts: list[str], path: Path) -> list[dict[str, Any]]:
    groups = raw.get("instance_groups") or []
    whole = isinstance(groups, list) and all(
        isinstance(group, dict) and isinstance(group.get("instance_group_name"), str) and _is_names(group.get("hosts"))
        for group in groups
    )
    if not whole:
        raise ContractError(
            f'{path}: every entry of "instance_groups" needs an "instance_group_name" and "hosts", '
            f"found {short_repr(groups)}."
        )
    grouped = [host for group in groups for host in group["hosts"]]
    if len(set(grouped)) < len(grouped) or not set(grouped) <= set(hosts):
        raise ContractError(
            f'{path}: "instance_groups" must list each of the hosts {short_repr(hosts)} at most once and no other '
            f"host, found {short_repr(grouped)}."
        )
    return list(groups)


def has_checkpoint_config(tree: MlTree) -> bool:
    return _checkpoint_config(tree).exists()


def _checkpoint_config(tree: MlTree) -> Path:
    return tree.config / "checkpointconfig.json"


def _checkpoints(tree: MlTree) -> Path:
    path = _checkpoint_config(tree)
    local = _text(_read_object(path), "LocalPath", path)
    return tree.locate(local) if local else tree.checkpoints


def _is_names(value: Any) -> bool:
    """Whether the value is a list of different printable names: ranks follow from them, and log lines start with
    them."""
    if not isinstance(value, list) or not all(isinstance(name, str) and name.isprintable() for name in value):
        return False
    return bool(value) and all(value) and len(set(value)) == len(value)


def _text(raw: dict[str, Any], key: str, path: Path) -> str | None:
    value = raw.get(key)
    if value is None or isinstance(value, str):
        return value or None
    raise ContractError(f'{path}: "{key}" must be text, found {short_repr(value)}.')


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise OSError("it is not a regular file")  # reading a pipe could block forever
    with path.open("rb") as file:
        data = file.read(_LONGEST_FILE + 1)
    if len(data) > _LONGEST_FILE:
        raise OSError(f"it is larger than {_LONGEST_FILE} bytes")
    return data


def _read_object(path: Path, required: bool = False) -> dict[str, Any]:
    """The object in a JSON file; an absent file is an empty object, unless it is required."""
    try:
        value = json.loads(_read(path).decode("utf-8-sig"))
    except FileNotFoundError:
        if not required:
            return {}
        raise ContractError(f"{path} is missing: the platform writes it before it starts a container.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ContractError(f"{path} cannot be read: {error}.") from error
    if not isinstance(value, dict):
        raise ContractError(f"{path} must hold a JSON object, found {type(value).__name__}.")
    return value
