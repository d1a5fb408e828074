"""Measures the rate of a link from the kernel's counters of its connections, at the sending end.

The hosts' processors are busy while scripts import their packages, and a probe that waits for a processor must not take
a link for slow. The kernel counts the bytes that have arrived, and the time in which a connection had something to send
and the receiver had room for it. The rate is that of this time.

Bytes that arrived behind a lost packet count too, as the receiver reports them in selective acknowledgements. Without
them, a connection that repairs a loss at the end of the measurement would seem to have sent nothing for a round trip.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from typing import Sequence

_SIZE = 192  # bytes of struct tcp_info up to the counters of time, which Linux 4.9 added
_ACKED = 120  # offset of tcpi_bytes_acked (Linux 4.2)
_SEGMENT, _SELECTIVE = 16, 28  # offsets of tcpi_snd_mss, in bytes, and of tcpi_sacked, in segments
_BUSY = 168  # offset of tcpi_busy_time, tcpi_rwnd_limited; in microseconds
_MIN_RTT = 148  # offset of tcpi_min_rtt, in microseconds
# A shorter time says nothing about the rate.
_LEAST_SENDING = 0.05


@dataclass(frozen=True)
class Sample:
    """The counters of a connection at a monotonic time. `arrived` is in bytes; `sending` is in seconds, and None in
    older kernels."""

    at: float
    arrived: int
    sending: float | None

    @classmethod
    def of(cls, connection: socket.socket) -> Sample:
        """Raises OSError."""
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
        now = time.monotonic()
        if len(info) < _ACKED + 8:
            raise OSError("the kernel does not count the bytes of a connection")
        acked, segment, selective = (
            int(struct.unpack_from(kind, info, offset)[0])
            for kind, offset in (("Q", _ACKED), ("I", _SEGMENT), ("I", _SELECTIVE))
        )
        arrived = acked + segment * selective
        if len(info) < _SIZE:
            return cls(now, arrived, None)
        busy, no_room = struct.unpack_from("QQ", info, _BUSY)
        return cls(now, arrived, max(0, busy - no_room) / 1e6)


def least_round_trip(connection: socket.socket) -> float | None:
    """The shortest round trip of the connection in seconds, as the kernels of both hosts saw it: no process waits in
    it. None if the kernel does not report it."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    if len(info) < _MIN_RTT + 4:
        return None
    microseconds = int(struct.unpack_from("I", info, _MIN_RTT)[0])
    return microseconds / 1e6 if 0 < microseconds < 0xFFFFFFFF else None


@dataclass(frozen=True)
class Flow:
    """A connection between two samples."""

    first: Sample
    last: Sample

    @property
    def seconds(self) -> float:
        return self.last.at - self.first.at

    @property
    def share(self) -> float:
        """The share of the time in which the connection was limited by nothing but the link."""
        if self.first.sending is None or self.last.sending is None or self.seconds <= 0:
            return 1.0
        return min(1.0, (self.last.sending - self.first.sending) / self.seconds)


def rate(flows: Sequence[Flow]) -> float | None:
    """Bytes a second of a link with these connections; None if they hardly sent anything."""
    share = max((flow.share for flow in flows), default=0.0)
    if share < _LEAST_SENDING or any(flow.seconds <= 0 for flow in flows):
        return None
    return sum((flow.last.arrived - flow.first.arrived) / flow.seconds for flow in flows) / share
