"""The /opt/ml tree of one simulated host, written as the platform writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from smdp_launch.localcloud.groups import groups, receives
from smdp_launch.localcloud.protocol.requests import checkpoint_path, tensorboard_path

ML = PurePosixPath("/opt/ml")
_FOLDERS = ("input/config", "input/data", "model", "output/data", "code")


@dataclass(frozen=True)
class HostTree:
    """The folders of host `name`: `ml` is its /opt/ml, `tmp` its /tmp, `opt` an empty folder for a private /opt."""

    name: str
    root: Path

    @property
    def number(self) -> int:
        """The host's number, counted from 1."""
        return host_number(self.name)

    @property
    def ml(self) -> Path:
        return self.root / "ml"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def opt(self) -> Path:
        return self.root / "opt"

    @property
    def python(self) -> Path:
        """The Python environment of a host without an image, see `host_python`."""
        return self.root / "python"

    @property
    def layer(self) -> Path:
        """The files that a container of this host writes over its image."""
        return self.root / "layer"

    @property
    def hosts_file(self) -> Path:
        return self.root / "hosts"

    @property
    def spec(self) -> Path:
        """The `HostSpec`, which contains the server's credentials."""
        return self.root / "spec.json"

    def at(self, path: PurePosixPath) -> Path:
        """The path on this machine of a path below the host's /opt/ml."""
        return self.ml / path.relative_to(ML)

    def channel(self, name: str) -> Path:
        return self.ml / "input/data" / name


def host_number(name: str) -> int:
    """Counted from 1."""
    return int(name.rpartition("-")[2])


def create_tree(tree: HostTree, request: Mapping[str, Any], addresses: Mapping[str, str], interface: str) -> None:
    """Create the folders and the configuration files.

    Args:
        addresses: of all hosts by name, in the platform's order.
        interface: the network interface that has the host's address.
    """
    hosts = list(addresses)
    for folder in _FOLDERS:
        (tree.ml / folder).mkdir(parents=True)
    tree.tmp.mkdir()
    tree.tmp.chmod(0o1777)
    tree.opt.mkdir()
    lines = ["127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback"]
    lines += [f"{address}\t{name}" for name, address in addresses.items()]
    tree.hosts_file.write_text("\n".join(lines) + "\n")
    resources = request["ResourceConfig"]
    channels = [one for one in request.get("InputDataConfig", []) if receives(one, tree.name, resources)]
    for channel in channels:
        tree.channel(channel["ChannelName"]).mkdir()
    files: dict[str, Any] = {
        "hyperparameters.json": request.get("HyperParameters", {}),
        "resourceconfig.json": _resources(tree.name, resources, hosts, interface),
        "inputdataconfig.json": {
            channel["ChannelName"]: _channel(channel, request["AlgorithmSpecification"]["TrainingInputMode"])
            for channel in channels
        },
    }
    if "CheckpointConfig" in request:
        local = checkpoint_path(request["CheckpointConfig"])
        files["checkpointconfig.json"] = {"LocalPath": str(local), "S3Uri": request["CheckpointConfig"]["S3Uri"]}
        tree.at(local).mkdir(parents=True, exist_ok=True)
    if "TensorBoardOutputConfig" in request:
        tree.at(tensorboard_path(request["TensorBoardOutputConfig"])).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (tree.ml / "input/config" / name).write_text(json.dumps(content))


def _resources(name: str, requested: Mapping[str, Any], hosts: Sequence[str], interface: str) -> dict[str, Any]:
    known = groups(requested)
    own = next(one for one in known if name in one.hosts)
    return {
        "current_host": name,
        "current_instance_type": own.instance_type,
        "current_group_name": own.name,
        "hosts": list(hosts),
        "instance_groups": [one.to_json() for one in known],
        "network_interface_name": interface,
    }


def _channel(channel: Mapping[str, Any], default_mode: str) -> dict[str, str]:
    source = channel["DataSource"].get("S3DataSource", {})  # every host has all of a file system: FullyReplicated
    described = {
        "TrainingInputMode": channel.get("InputMode", default_mode),
        "S3DistributionType": source.get("S3DataDistributionType", "FullyReplicated"),
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    return {"ContentType": channel["ContentType"], **described} if "ContentType" in channel else described
