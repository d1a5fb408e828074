"""Ports for a test's own servers."""

import random
import socket
from pathlib import Path

# The kernel gives ports of its own range to outgoing connections, also one that a test found free a moment ago.
_LOWEST = 10_000


def free_port() -> int:
    """A port of this machine that nobody uses or is given; so is the next one."""
    kernels = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(_LOWEST, kernels - 1)
        if _is_free(port) and _is_free(port + 1):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
