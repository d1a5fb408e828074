"""Which links a probe measures, and for how long. Does no I/O.

The hosts form a ring in the order of the exchange, which is the order of their ranks. A first round measures the
latency of each link of the ring. A second one measures all rates in one direction at once, so that each host sends and
receives as it does in the exchange, and a third one those in the other direction: a host whose link is slow is then
slow with both of its neighbours.

In the time that is left, links that seem slow are measured again: a busy processor can make a link look slow. Links
that were measured least often come first, and of them those that no slow host explains. Of two values the better one
counts, of more the median.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Iterable, Mapping, Sequence

from smdp_entrypoint.network.connection import LARGEST_CHUNK, SMALLEST_CHUNK
from smdp_entrypoint.network.figures import Figure
from smdp_entrypoint.network.messages import Call, Ready, Round

# A single flow reaches 5 Gbit/s between instances outside a placement group (EC2 User Guide, "Amazon EC2 instance
# network bandwidth", checked 2026-11-26).
_FLOW_GBIT = 5.0
_MOST_STREAMS = 32
# Connections of a host over all its rails.
_MOST_CONNECTIONS = 256
# Parts of the time limit.
_LATENCY_PART, _RATE_PART = 0.17, 0.36
_AGAIN_PART = 0.24
_SKIP_PART, _WINDOW_PART = 0.03, 0.17
_LONGEST_WINDOW_S = 0.6
# Without a figure nothing is compared with a rate, so it is only estimated.
_UNKNOWN_WINDOW_S = 0.15
_CHUNKS = 64  # of a connection in a window
_BITS = 8e-9  # Gbit in a byte


@dataclass(frozen=True)
class Probe:
    """`hosts` are those that are ready, in the order of the exchange; `limit` is in seconds, for all rounds."""

    hosts: Sequence[str]
    ready: Mapping[str, Ready]
    figure: Figure | None
    limit: float

    def rails(self) -> list[str]:
        """The rails that at least half of the hosts have. The rail with the hosts' addresses is the first."""
        found = Counter(rail for host in self.hosts for rail in self.ready[host].rails)
        main = self.main()
        common = [rail for rail, hosts in found.items() if 2 * hosts >= len(self.hosts)]
        return sorted(common, key=lambda rail: (rail != main, rail))

    def main(self) -> str:
        names = Counter(self.ready[host].main for host in self.hosts)
        return names.most_common(1)[0][0] if names else ""

    def rounds(self) -> list[dict[str, Round]]:
        """The plan of each round by host."""
        streams, chunk = self._streams()
        ring = self._neighbours(1)
        rounds = [self._round(0, ring, 0, chunk), self._round(1, ring, streams, chunk)]
        if len(self.hosts) > 2:
            rounds.append(self._round(2, self._neighbours(-1), streams, chunk))
        return rounds

    def again(self, number: int, links: Iterable[tuple[str, str, str]], limit: float) -> dict[str, Round]:
        """The plan of a round that repeats `links` (source, target, rail), the first ones first; only their sources
        take part. As in the other rounds, a host sends to one host, and receives from one, over each rail."""
        streams, chunk = self._streams()
        whole = self._round(number, [*self._neighbours(1), *self._neighbours(-1)], streams, chunk)
        planned = {(host, call.host, call.rail): call for host in whole for call in whole[host].calls}
        calls: dict[str, list[Call]] = {}
        busy: set[tuple[str, str, str]] = set()
        for source, target, rail in links:
            ends = {("sends", source, rail), ("receives", target, rail)}
            if (source, target, rail) in planned and not busy & ends:
                busy |= ends
                calls.setdefault(source, []).append(planned[source, target, rail])
        return {
            host: replace(whole[host], calls=tuple(own), limit=min(limit, whole[host].limit))
            for host, own in calls.items()
        }

    @property
    def again_seconds(self) -> float:
        """A repeated round needs so much time."""
        return _AGAIN_PART * self.limit

    def _neighbours(self, step: int) -> list[tuple[str, str]]:
        count = len(self.hosts)
        return [(host, self.hosts[(place + step) % count]) for place, host in enumerate(self.hosts)]

    def _round(self, number: int, pairs: Sequence[tuple[str, str]], streams: int, chunk: int) -> dict[str, Round]:
        calls: dict[str, list[Call]] = {host: [] for host in self.hosts}
        for source, target in pairs:
            for rail in self.rails():
                place = self.ready[target].rails.get(rail)
                if place is not None and rail in self.ready[source].rails:
                    calls[source].append(Call(target, rail, *place))
        window = min(_LONGEST_WINDOW_S, _WINDOW_PART * self.limit)
        limit = self.limit * (_RATE_PART if streams else _LATENCY_PART)
        return {
            host: Round(
                number,
                tuple(calls[host]),
                streams,
                chunk,
                limit,
                min(_LONGEST_WINDOW_S, _SKIP_PART * self.limit),
                window if self.figure is not None else min(window, _UNKNOWN_WINDOW_S),
            )
            for host in self.hosts
        }

    def _streams(self) -> tuple[int, int]:
        """The connections of a link, and the bytes that a connection sends at once."""
        if self.figure is None:
            return 1, LARGEST_CHUNK // 16
        gbit = self.figure.rail_gbit
        most = max(1, min(_MOST_STREAMS, _MOST_CONNECTIONS // max(1, len(self.rails()))))
        streams = max(1, min(most, math.ceil(gbit / _FLOW_GBIT)))
        window = min(_LONGEST_WINDOW_S, _WINDOW_PART * self.limit)
        chunk = gbit / _BITS * window / streams / _CHUNKS
        return streams, int(max(SMALLEST_CHUNK, min(chunk, LARGEST_CHUNK)))
