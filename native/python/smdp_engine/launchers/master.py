"""The address and port of the store of a job whose launcher sets none."""

import zlib
from typing import Optional, Tuple

from .launch import LaunchError
from .variables import Variables

#: Ports that are derived from a job's ID. They lie below the ports that Linux assigns to outgoing connections.
FIRST_PORT, PORTS = 20_000, 10_000
_LOOPBACK = ("localhost", "::1")


def port_of(job: str) -> int:
    """The same port on every rank of a job, and most likely another one for another job."""
    return FIRST_PORT + zlib.crc32(job.encode()) % PORTS


def port(variables: Variables, job: Optional[str], example: str) -> Tuple[int, str]:
    """MASTER_PORT, otherwise one from the job's ID, and where it comes from."""
    given = variables.port()
    if given is not None:
        return given, "from the environment"
    if job is None:
        raise LaunchError(
            f"MASTER_PORT is not set, and this launcher has no ID of the job to derive one from: "
            f"set it to a free port of rank 0's host, as in {example}"
        )
    return port_of(job), "from the job's ID"


def check_address(address: str, *, is_one_host: bool) -> None:
    """Refuse an address that means another machine on each host."""
    if not is_one_host and (address in _LOOPBACK or address.startswith("127.")):
        raise LaunchError(
            f"MASTER_ADDR={address} is this host on every host, and the job has several: "
            "set MASTER_ADDR to the name or address of rank 0's host"
        )
