"""The input channels of a job: what is copied before the hosts start, and what is served while they train."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from smdp_launch.catalog.faults import Fault
from smdp_launch.localcloud.client.bucket import Buckets, during
from smdp_launch.localcloud.groups import receives
from smdp_launch.localcloud.inputs.counters import write_status
from smdp_launch.localcloud.inputs.service import Inputs, Kind, Served
from smdp_launch.localcloud.isolation import namespaces
from smdp_launch.localcloud.isolation.namespaces import Mount
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.runtime import channels
from smdp_launch.localcloud.runtime.outcome import JobFailed
from smdp_launch.localcloud.runtime.tree import HostTree

_FOLDER = "channels"  # in a host's root: the listings of its channels


class InputChannels:
    def __init__(self, request: Mapping[str, Any], folder: JobFolder, trees: Sequence[HostTree]) -> None:
        self._default_mode: str = request["AlgorithmSpecification"]["TrainingInputMode"]
        self._channels: Sequence[Mapping[str, Any]] = request.get("InputDataConfig", [])
        self._resources: Mapping[str, Any] = request["ResourceConfig"]
        self._folder = folder
        self._trees = trees
        self._fault: Fault | None = None
        self._isolated = False
        self.clear()

    def clear(self) -> None:
        """Forget the hosts' folders, which are removed."""
        self._mounts: list[Mount] = []
        self._served: dict[str, list[Served]] = {tree.name: [] for tree in self._trees}
        self._copied: dict[str, dict[str, Any]] = {tree.name: {} for tree in self._trees}
        self._not_mounted: list[str] = []
        self.unlimited: list[str] = []  # channels that a slow-input fault does not reach

    @cached_property
    def refusal(self) -> str | None:
        """Why hosts cannot mount channels that are served; None where they can."""
        return namespaces.refusal(with_inputs=True)

    def fill(self, buckets: Buckets, check: Callable[[], None], fault: Fault | None, *, isolated: bool) -> None:
        """Copy or list every channel.

        Args:
            check: called before each object; may raise to end the work.
            fault: a slow-input fault serves every channel that it can, and limits its speed.
            isolated: whether hosts have namespaces.

        Raises JobFailed.
        """
        self._fault, self._isolated = (fault if fault is not None and fault.kind == "slow-input" else None), isolated
        if self._fault is not None and self.refusal is not None:
            raise JobFailed(f"ClientError: input channels cannot be slowed on this machine: {self.refusal}")
        for channel in self._channels:
            if "S3DataSource" in channel["DataSource"]:
                self._fill_from_bucket(channel, buckets, check)
            else:
                self._attach(channel)
        for tree in self._trees:
            if self._copied[tree.name] and not self._served[tree.name]:
                write_status([tree.ml / "input", tree.root], self._copied[tree.name])

    @property
    def mounts(self) -> tuple[Mount, ...]:
        return tuple(self._mounts)

    def of(self, tree: HostTree) -> Inputs | None:
        """What the host serves while it trains; None for nothing."""
        served = self._served[tree.name]
        if not served:
            return None
        rate, latency = (self._fault.rate, self._fault.latency) if self._fault is not None else (0.0, 0.0)
        return Inputs(served, [str(tree.ml / "input"), str(tree.root)], self._copied[tree.name], rate, latency)

    @property
    def served(self) -> list[str]:
        return sorted({one.name for served in self._served.values() for one in served})

    def notes(self) -> list[str]:
        """For the job's log."""
        if not self._not_mounted:
            return []
        names = ", ".join(self._not_mounted)
        return [f"Copied before the start as in File mode, although the mode is FastFile: {names} ({self.refusal})."]

    def _receivers(self, channel: Mapping[str, Any]) -> list[HostTree]:
        return [tree for tree in self._trees if receives(channel, tree.name, self._resources)]

    def _mode(self, channel: Mapping[str, Any]) -> str:
        return str(channel.get("InputMode", self._default_mode))

    def _fill_from_bucket(self, channel: Mapping[str, Any], buckets: Buckets, check: Callable[[], None]) -> None:
        name, mode = channel["ChannelName"], self._mode(channel)
        if mode == "Pipe":
            self._list(channel, buckets, check, "pipe")
        elif (mode == "FastFile" and self.refusal is None) or self._fault is not None:
            self._list(channel, buckets, check, "objects")
        else:
            began = time.monotonic()
            receivers = self._receivers(channel)
            amounts = channels.download(channel, receivers, buckets, check)
            seconds = round(time.monotonic() - began, 3)
            for tree in receivers:
                self._copied[tree.name][name] = {"mode": "File", "bytes": amounts[tree.name], "seconds": seconds}
            if mode == "FastFile":
                self._not_mounted.append(name)

    def _list(self, channel: Mapping[str, Any], buckets: Buckets, check: Callable[[], None], kind: Kind) -> None:
        name, mode = channel["ChannelName"], self._mode(channel)
        receivers = self._receivers(channel)
        with during("Data download failed"):
            listed = channels.listed(channel, receivers, buckets, self._folder.state_folder.objects, check)
        for tree in receivers:
            file = tree.root / _FOLDER / f"{name}.jsonl"
            file.parent.mkdir(exist_ok=True)
            with file.open("w", encoding="utf-8") as lines:
                lines.writelines(one.line() for one in listed[tree.name])
            place = tree.channel(name)
            if kind == "pipe":
                place.rmdir()  # the platform has only the pipes
                place = place.parent
            self._served[tree.name].append(Served(name, kind, mode, str(file), str(place)))

    def _attach(self, channel: Mapping[str, Any]) -> None:
        # pydantic takes a third of the time that a supervisor takes to start, and few jobs have file systems
        from smdp_launch.localcloud.account import AccountFile
        from smdp_launch.localcloud.runtime import mounts

        account = AccountFile(self._folder.state_folder.root)
        name, source = channel["ChannelName"], channel["DataSource"]["FileSystemDataSource"]
        counted = source["FileSystemType"] == "FSxLustre" or self._fault is not None
        if source["FileSystemAccessMode"] != "ro":
            self.unlimited.append(name)
        elif counted and self._isolated and self.refusal is None:
            folder = str(mounts.existing(source, account))
            for tree in self._trees:
                one = Served(name, "folder", source["FileSystemType"], folder, str(tree.channel(name)))
                self._served[tree.name].append(one)
            return
        self._mounts += mounts.attach(channel, self._trees, account, isolated=self._isolated)
