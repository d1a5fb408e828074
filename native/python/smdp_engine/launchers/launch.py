"""What a launcher decided about a process."""

from typing import Dict, NamedTuple, Optional


class LaunchError(RuntimeError):
    """A launcher's variable is missing, malformed or contradicts another one. The message names it and the fix."""


class Launch(NamedTuple):
    """This process as a rank of a job."""

    #: A name in ``LAUNCHERS``.
    launcher: str
    #: The job as the launcher names it, such as "SLURM step 17.0".
    job: str
    rank: int
    world_size: int
    #: The rank among the processes of this host.
    local_rank: int
    #: The number of processes of this host; None where the launcher does not report it.
    local_world_size: Optional[int]
    #: Host name or address, and port, of the store that rank 0 serves (torchrun: that its agent serves).
    master_addr: str
    master_port: int
    #: Where ``master_addr`` and ``master_port`` come from.
    addr_origin: str = "from the environment"
    port_origin: str = "from the environment"

    def variables(self) -> Dict[str, str]:
        """The variables that torchrun would set, which scripts and libraries read."""
        known = {
            "RANK": self.rank,
            "WORLD_SIZE": self.world_size,
            "LOCAL_RANK": self.local_rank,
            "LOCAL_WORLD_SIZE": self.local_world_size,
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": self.master_port,
        }
        return {name: str(value) for name, value in known.items() if value is not None}

    def __str__(self) -> str:
        return (
            f"{self.job}: {self.world_size} {'rank' if self.world_size == 1 else 'ranks'}, "
            f"MASTER_ADDR={self.master_addr} ({self.addr_origin}), MASTER_PORT={self.master_port} ({self.port_origin})"
        )
