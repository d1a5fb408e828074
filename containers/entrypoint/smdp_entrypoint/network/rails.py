"""Finds the network interfaces (rails) of a host, and its Elastic Fabric Adapters.

The addresses come from the kernel and the other properties from /sys, which can show another network namespace: a
property that cannot be read is left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import re
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping

from smdp_entrypoint.contract.devices import System

_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_GET_FLAGS = 0x8913  # SIOCGIFFLAGS
_UP, _LOOPBACK, _RUNNING = 0x1, 0x8, 0x40
_NAME_SIZE = 16  # bytes, IFNAMSIZ
# Interfaces of containers and virtual machines on this host, which reach no other host.
_INNER = re.compile(r"(lo$|docker|br-|virbr|veth|ifb|dummy|tun|tap|wg|cni|flannel|cali|podman|lxc)")
_AMAZON = "0x1d0f"  # PCI vendor ID
_MOST_RAILS = 64


@dataclass(frozen=True)
class Rail:
    """An interface with an address that other hosts can reach."""

    name: str
    address: str


@dataclass(frozen=True)
class Adapter:
    """An Elastic Fabric Adapter. `numa` is the node that it is nearest to, None if the system has one node only."""

    name: str
    pci: str
    numa: int | None


def is_loopback(address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    return False


def find_rails(main: str, wanted: str = "", interfaces: Callable[[], Mapping[str, str]] | None = None) -> list[Rail]:
    """The rails of this host, the one with the address `main` first.

    Args:
        main: the address by which the other hosts know this host.
        wanted: the name or the address of the only interface to use; empty for all.
        interfaces: the address of each interface that is up.
    """
    found = (interfaces or up_interfaces)()
    rails = [
        Rail(name, address)
        for name, address in found.items()
        if not _INNER.match(name) and _reaches_others(address) and wanted in ("", name, address)
    ]
    if main and not wanted and all(rail.address != main for rail in rails):
        rails.append(Rail(next((name for name, address in found.items() if address == main), "main"), main))
    return sorted(rails, key=lambda rail: (rail.address != main, rail.name))[:_MOST_RAILS]


def find_adapters(system: System | None = None) -> list[Adapter]:
    """The Elastic Fabric Adapters that this container sees, in the order of their names."""
    folder = (system or System()).sys / "class/infiniband"
    adapters = []
    with contextlib.suppress(OSError):
        for device in sorted(folder.iterdir(), key=lambda path: path.name):
            if _read(device / "device/vendor") == _AMAZON:
                pci = (device / "device").resolve().name
                adapters.append(Adapter(device.name, pci, _node(device / "device/numa_node")))
    return adapters


def up_interfaces() -> dict[str, str]:
    """The IPv4 address of each interface that is up and connected."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                flags = struct.unpack_from("H", _ask(control, _GET_FLAGS, name), _NAME_SIZE)[0]
                if flags & _UP and flags & _RUNNING and not flags & _LOOPBACK:
                    found[name] = socket.inet_ntoa(_ask(control, _GET_ADDRESS, name)[20:24])
    return found


def _ask(control: socket.socket, request: int, name: str) -> bytes:
    question = struct.pack("256s", name.encode()[: _NAME_SIZE - 1])
    answer: Any = fcntl.ioctl(control.fileno(), request, question)
    return bytes(answer)


def _reaches_others(address: str) -> bool:
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        return not (parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified)
    return False


def _node(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text.isdecimal() else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
