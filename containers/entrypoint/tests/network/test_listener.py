"""The ports of a probe: unauthenticated clients, and what remains of them."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

from smdp_entrypoint.network.caller import Caller
from smdp_entrypoint.network.connection import probe_key
from smdp_entrypoint.network.listener import Listener
from smdp_entrypoint.network.messages import Call, Round
from smdp_entrypoint.network.rails import Rail

Until = Callable[[Callable[[], Any], str], Any]
HERE = Rail("lo", "127.0.0.1")
KEY = probe_key("token")


def descriptors() -> set[str]:
    return {one.name for one in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener([HERE], ["algo-1"], KEY)
    one.open()
    yield one
    one.close()


def round_to(listener: Listener, streams: int = 1, limit: float = 60.0) -> Round:
    address, port = listener.places["lo"]
    return Round(1, (Call("algo-2", "lo", address, port),), streams, 65536, limit, 0.01, 0.05)


def measured(key: bytes, listener: Listener, streams: int = 1, limit: float = 60.0) -> tuple[float | None, str]:
    caller = Caller("algo-1", [HERE], key)
    try:
        value = caller.start(round_to(listener, streams, limit)).values()[0]
    finally:
        caller.close()
        caller.release()
    return value.value, value.error


def connect(listener: Listener) -> socket.socket:
    return socket.create_connection(listener.places["lo"], 60)


@pytest.mark.parametrize("streams", [1, 3])
def test_host_with_the_token_is_measured(listener: Listener, streams: int) -> None:
    rate, error = measured(KEY, listener, streams)
    assert error == ""
    assert rate is not None and rate > 0


def test_latency_is_measured(listener: Listener) -> None:
    latency, error = measured(KEY, listener, streams=0)
    assert error == ""
    assert latency is not None and 0 < latency < 1


def test_client_with_another_token_is_disconnected(listener: Listener) -> None:
    rate, error = measured(probe_key("another"), listener)
    assert rate is None
    assert "closed" in error


def test_client_that_sends_other_bytes_is_disconnected(listener: Listener) -> None:
    with connect(listener) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert b"proof" not in client.recv(4096)
        with pytest.raises(ConnectionError):
            while client.recv(4096):
                pass
            raise ConnectionError


def test_silent_client_is_disconnected_and_others_are_measured(listener: Listener) -> None:
    with connect(listener) as client:
        client.settimeout(60)
        assert measured(KEY, listener)[1] == ""
        client.recv(4096)  # the nonce
        assert client.recv(4096) == b""


def test_too_many_silent_clients_are_refused_and_take_no_descriptors(listener: Listener, until: Until) -> None:
    clients = [connect(listener) for _ in range(200)]
    try:
        until(lambda: len(listener._links) <= 128, "the limit")
        for client in clients:
            client.close()
        until(lambda: not listener._links, "the end of all clients")
        assert measured(KEY, listener)[1] == ""
    finally:
        for client in clients:
            client.close()


def test_nothing_remains_after_the_close() -> None:
    before, threads = descriptors(), set(threading.enumerate())
    listener = Listener([HERE], ["algo-1"], KEY)
    listener.open()
    unauthenticated = [connect(listener) for _ in range(3)]
    assert measured(KEY, listener, 2)[1] == ""
    place = listener.places["lo"]
    listener.close(60)
    for one in unauthenticated:
        one.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, 60)
    assert set(threading.enumerate()) <= threads
    assert descriptors() == before


def test_host_that_does_not_answer_ends_a_call_at_its_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        call = Call("algo-2", "lo", *server.getsockname())
        caller = Caller("algo-1", [HERE], KEY)
        value = caller.start(Round(1, (call,), 2, 65536, 0.3, 0.01, 0.05)).values()[0]
        caller.release()
    assert value.value is None
    assert value.error == "it did not answer in time"
