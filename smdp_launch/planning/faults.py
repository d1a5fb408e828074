"""The rank for a fault whose place is not given in full."""

from __future__ import annotations

from smdp_launch.catalog.faults import Place
from smdp_launch.request.ranks import Rank, rank_map


def target_rank(place: Place, hosts: int, workers_per_host: int) -> Rank:
    """The rank at ``place`` on ``hosts`` x ``workers_per_host``: by default the last rank, or the host's first.

    Raises:
        ValueError: there is no such host or rank, or the rank is on another host.
    """
    ranks = rank_map(hosts, workers_per_host)
    if place.rank is not None:
        if place.rank >= len(ranks):
            raise ValueError(f"there is no rank {place.rank}: this run has ranks 0 to {len(ranks) - 1}")
        rank = ranks[place.rank]
        if place.host not in (None, rank.host):
            raise ValueError(f"rank {rank.rank} is on {rank.host}, not on {place.host}")
        return rank
    if place.host is None:
        return ranks[-1]
    of_host = [one for one in ranks if one.host == place.host]
    if not of_host:
        names = ", ".join(dict.fromkeys(one.host for one in ranks))
        raise ValueError(f"there is no host {place.host}: this run has {names}")
    return of_host[0]
