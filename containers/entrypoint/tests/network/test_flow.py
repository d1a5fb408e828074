"""The counters of a connection from which the rate of a link is computed."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack, suppress
from typing import Any, Callable, Iterator

import pytest

from smdp_entrypoint.network.connection import open_window
from smdp_entrypoint.network.flow import Flow, Sample, rate

Until = Callable[[Callable[[], Any], str], Any]
SEGMENT = 8949  # bytes of a TCP segment between EC2 instances


class Counters:
    """A connection with these counters; times are in microseconds. The offsets are those of struct tcp_info."""

    def __init__(self, acked: int, selective: int, busy: int, no_room: int) -> None:
        self._values = {
            ("I", 16): SEGMENT,
            ("I", 28): selective,
            ("Q", 120): acked,
            ("Q", 168): busy,
            ("Q", 176): no_room,
        }

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        info = bytearray(size)
        for (kind, offset), value in self._values.items():
            struct.pack_into(kind, info, offset, value)
        return bytes(info)


def sample(at: float, *counters: int) -> Sample:
    made = Sample.of(Counters(*counters))  # type: ignore[arg-type]
    return Sample(at, made.arrived, made.sending)


def test_bytes_behind_a_lost_segment_count() -> None:
    first = sample(10.0, 1_000_000, 0, 100_000, 0)
    last = sample(10.5, 1_100_000, 100, 600_000, 0)
    assert rate([Flow(first, last)]) == pytest.approx((100_000 + 100 * SEGMENT) / 0.5)


def test_time_without_room_at_the_receiver_does_not_count() -> None:
    first = sample(10.0, 0, 0, 100_000, 20_000)
    last = sample(10.5, 1_000_000, 0, 600_000, 270_000)
    assert rate([Flow(first, last)]) == pytest.approx(1_000_000 / 0.25)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        sender = stack.enter_context(socket.create_connection(listening.getsockname()))
        receiver = stack.enter_context(listening.accept()[0])
        sender.setblocking(False)
        yield sender, receiver


def test_open_window_has_room_while_no_process_receives(
    ends: tuple[socket.socket, socket.socket], until: Until
) -> None:
    sender, receiver = ends
    before = receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    open_window(receiver)
    assert receiver.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == before

    def arrived() -> bool:
        with suppress(BlockingIOError):
            sender.send(bytes(65536))
        time.sleep(0.001)
        return Sample.of(sender).arrived > 512 * 1024

    until(arrived, "more bytes in the window than the system begins with")
