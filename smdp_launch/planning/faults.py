"""Where a fault strikes that was asked for without every detail."""

from __future__ import annotations

from smdp_launch.catalog.faults import Place
from smdp_launch.request.ranks import Rank, rank_map


def victim(place: Place, hosts: int, workers_per_host: int) -> Rank:
    """The worker that is struck on ``hosts`` x ``workers_per_host``: the last of all, or the first of the host that is
    named.

    Raises:
        ValueError: there is no such host or rank, or the rank is on another host.
    """
    ranks = rank_map(hosts, workers_per_host)
    if place.rank is not None:
        if place.rank >= len(ranks):
            raise ValueError(f"there is no rank {place.rank}: here they are 0 to {len(ranks) - 1}")
        found = ranks[place.rank]
        if place.host not in (None, found.host):
            raise ValueError(f"rank {found.rank} is on {found.host}, not on {place.host}")
        return found
    if place.host is None:
        return ranks[-1]
    of_host = [one for one in ranks if one.host == place.host]
    if not of_host:
        names = ", ".join(dict.fromkeys(one.host for one in ranks))
        raise ValueError(f"there is no {place.host}: here the hosts are {names}")
    return of_host[0]
