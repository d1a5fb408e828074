"""Simulated hosts for measurements: namespaces joined by a bridge, with shaped links.

A host is a network, mount, IPC and UTS namespace with its own ``eth0``; a bridge in a separate namespace joins them.
``tc ... tbf`` shapes both directions of a host's link with a burst of a millisecond or more, so the time of a message
of a few bursts does not measure the link. Needs root.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import List, Optional, Type

_BURST_S = 0.001
# The kernel passes packets of 64 KiB to a device, which must fit: if the shaper has to cut them into frames, 8 hosts at
# 400 Mbit/s reach only half the rate.
_LEAST_BURST = 1 << 17
# The queue of a shaped link: 50 ms of its rate, and the same number of bytes on links slower than 1 Gbit/s.
QUEUE_S = 0.05
QUEUE_BYTES = 6_250_000
# The shaper counts frames: a full frame of 1,514 bytes has 1,448 bytes of TCP payload.
WIRE_BYTES_PER_BYTE = 1514 / 1448


#: The folders that every host needs: this checkout and its Python.
_NEEDED = (Path(__file__).resolve().parents[2], Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve())


def _own_tmp() -> str:
    """Shell commands that give a host a separate /tmp, in which the needed folders keep their places."""
    commands = ["mount -t tmpfs tmpfs /dev/shm", "mkdir /dev/shm/.tmp", "mount --bind /tmp /dev/shm/.tmp"]
    commands += ["mount -t tmpfs tmpfs /tmp"]
    for path in _NEEDED:
        if path.is_relative_to("/tmp"):
            inside, outside = shlex.quote(str(path)), shlex.quote(f"/dev/shm/.tmp/{path.relative_to('/tmp')}")
            commands += [f"mkdir -p {inside}", f"mount --bind {outside} {inside}"]
    return " && ".join([*commands, "umount -l /dev/shm/.tmp", "rmdir /dev/shm/.tmp"])


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def burst_bytes(rate_mbit: int) -> int:
    """The bytes that an idle link sends at once."""
    return max(_LEAST_BURST, int(rate_mbit * 1e6 / 8 * _BURST_S))


class Lab:
    """``hosts`` hosts; ``rate_mbit`` None leaves the links unshaped."""

    def __init__(self, hosts: int, rate_mbit: Optional[int]) -> None:
        self.hosts = hosts
        self.rate_mbit = rate_mbit
        self._holders: List[subprocess.Popen[str]] = []

    def __enter__(self) -> "Lab":
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._remove()

    def address(self, host: int) -> str:
        return f"10.214.0.{host + 1}"

    def enter(self, host: int) -> List[str]:
        """The prefix of a command that runs on the host."""
        return self._inside(self._holders[host])

    def address_to_pid(self) -> "dict[str, int]":
        return {self.address(host): self._holders[host].pid for host in range(self.hosts)}

    def _inside(self, holder: "subprocess.Popen[str]") -> List[str]:
        return ["nsenter", "-t", str(holder.pid), "-n", "-m", "-u", "-i", "--"]

    def _hold(self, name: str) -> "subprocess.Popen[str]":
        script = f"hostname {name} && {_own_tmp()} && ip link set lo up && echo ready && exec sleep infinity"
        holder = subprocess.Popen(
            ["unshare", "-n", "-m", "-u", "-i", "--propagation", "private", "sh", "-c", script],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._holders.append(holder)
        assert holder.stdout is not None and holder.stdout.readline() == "ready\n", "cannot create namespaces"
        return holder

    def _build(self) -> None:
        for host in range(self.hosts):
            self._hold(f"algo-{host + 1}")
        switch = self._hold("switch")
        inside = self._inside(switch)
        _run(*inside, "ip", "link", "add", "br0", "type", "bridge")
        _run(*inside, "ip", "link", "set", "br0", "up")
        for host in range(self.hosts):
            self._plug(host, inside, switch.pid)

    def _plug(self, host: int, switch: List[str], switch_pid: int) -> None:
        port = f"port{host}"
        pid = str(self._holders[host].pid)
        _run("ip", "link", "add", f"v{os.getpid()}", "type", "veth", "peer", "name", f"w{os.getpid()}")
        _run("ip", "link", "set", f"v{os.getpid()}", "netns", pid, "name", "eth0")
        _run("ip", "link", "set", f"w{os.getpid()}", "netns", str(switch_pid), "name", port)
        _run(*self.enter(host), "ip", "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        _run(*self.enter(host), "ip", "link", "set", "eth0", "up")
        _run(*switch, "ip", "link", "set", port, "master", "br0", "up")
        if self.rate_mbit is not None:
            self._shape(self.enter(host), "eth0")
            self._shape(switch, port)

    def _shape(self, inside: List[str], device: str) -> None:
        assert self.rate_mbit is not None
        burst = burst_bytes(self.rate_mbit)
        limit = max(QUEUE_BYTES, int(self.rate_mbit * 1e6 / 8 * QUEUE_S))
        shaper = ["tbf", "rate", f"{self.rate_mbit}mbit", "burst", str(burst), "limit", str(limit)]
        _run(*inside, "tc", "qdisc", "add", "dev", device, "root", *shaper)

    def _remove(self) -> None:
        for holder in self._holders:
            holder.kill()
            holder.communicate()  # closes its pipe
        self._holders.clear()
