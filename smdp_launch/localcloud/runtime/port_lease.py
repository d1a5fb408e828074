"""Addresses and a port for one job, leased machine-wide from the kernel.

A job owns 127.A.B.0/24 while it has a socket bound to (127.A.B.1, a fixed port); host n has 127.A.B.n. A second socket
reserves the port of rank 0's store: it is bound but never listens. The kernel gives that port to no process that binds
to any free port, while a server that names the port and sets SO_REUSEADDR (torch's store does) can still listen on it.
Sockets are closed with their process, so no lease outlives its job.
"""

from __future__ import annotations

import hashlib
import socket
from dataclasses import dataclass

_LEASE_PORT = 64811  # above the range from which Linux assigns ports by default
_NETWORKS = 254 * 256  # 127.1.0.0 to 127.254.255.0; 127.0 belongs to the machine


class LeaseError(Exception):
    """No addresses are left."""


@dataclass(frozen=True)
class Lease:
    network: str  # "127.A.B"
    master_port: int
    _sockets: tuple[socket.socket, ...]

    def address(self, host: int) -> str:
        """The address of host `host`, counted from 1."""
        return f"{self.network}.{host}"

    def release(self) -> None:
        for one in self._sockets:
            one.close()


def take(job: str) -> Lease:
    """Raises LeaseError where no network is left."""
    first = int.from_bytes(hashlib.sha256(job.encode()).digest()[:4], "big")
    for attempt in range(_NETWORKS):
        high, low = divmod((first + attempt) % _NETWORKS, 256)
        network = f"127.{high + 1}.{low}"
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind((f"{network}.1", _LEASE_PORT))
        except OSError:
            claim.close()
            continue
        port = _reserve_port()
        return Lease(network, port.getsockname()[1], (claim, port))
    raise LeaseError(f"no 127.A.B.1 with a free port {_LEASE_PORT} is left on this machine")


def _reserve_port() -> socket.socket:
    reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("", 0))
    return reserved
