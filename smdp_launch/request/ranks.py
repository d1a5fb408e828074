"""The host and GPU of each rank. Hosts are in the platform's order, so the containers compute the same map."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rank:
    rank: int
    host: str
    local_rank: int

    @property
    def gpu(self) -> int:
        """The GPU's index on its host, which is the local rank."""
        return self.local_rank


def hosts(count: int) -> list[str]:
    """The hosts' names in the platform's order, which is alphabetical: algo-1, algo-10, algo-2."""
    return sorted(f"algo-{number}" for number in range(1, count + 1))


def rank_map(host_count: int, workers_per_host: int, all_hosts: int | None = None) -> list[Rank]:
    """
    Args:
        host_count: of the hosts that train.
        all_hosts: with those of other groups. SageMaker decides at the start which names a group gets; the local cloud
            gives the first names to the hosts that train.
    """
    return [
        Rank(index * workers_per_host + local, host, local)
        for index, host in enumerate(hosts(all_hosts or host_count)[:host_count])
        for local in range(workers_per_host)
    ]
