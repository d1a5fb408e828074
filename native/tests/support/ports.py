"""Free ports for a test's servers."""

import random
import socket
from pathlib import Path

# The kernel may assign a port of its own range to an outgoing connection at any time.
_LOWEST = 10_000


def free_port() -> int:
    """A port outside the kernel's range that no program uses; the next port is free too."""
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(_LOWEST, first_of_kernel - 1)
        if _is_free(port) and _is_free(port + 1):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
