"""Compares the numbers of workers of hosts that train together: ranks follow from them, so all must be equal.

Every host sends its number to the first host. The numbers come from the GPUs that a host shows, so hosts of one job can
differ. Each host then computes other ranks and another world size, and the script would wait for ranks that no host
starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: The kind of the message.
WORKERS = "workers"


@dataclass(frozen=True)
class Workers:
    """`first` is the first of the hosts that train with the sender: each instance group may train on its own."""

    first: str
    count: int

    @classmethod
    def parse(cls, fields: dict[str, Any]) -> Workers:
        """Parse a message of another host. Raises ValueError."""
        try:
            return cls(str(fields["first"]), int(fields["count"]))
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not a number of workers: {error!r}") from None


class Comparison:
    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int]] = {}

    def add(self, host: str, workers: Workers) -> str | None:
        """What is wrong if the host has another number than a host with which it trains."""
        known = self._known.setdefault(workers.first, (host, workers.count))
        if known[1] == workers.count:
            return None
        (one, count), (other, different) = sorted([known, (host, workers.count)])
        return (
            f"{one} has {count} worker(s) and {other} has {different}: hosts that train together need the same number. "
            "The log of each host gives the reason for its number. SMDP_WORKERS_PER_HOST in the job's environment sets "
            "the number on all hosts"
        )
