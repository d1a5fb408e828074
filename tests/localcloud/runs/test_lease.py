"""The port of rank 0's store: nobody gets it by chance, and who names it may listen on it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from smdp_launch.localcloud.runtime import lease


@pytest.fixture
def held() -> Iterator[lease.Lease]:
    taken = lease.take("ports")
    yield taken
    taken.release()


def _free_ports(family: socket.AddressFamily, reuse: bool, count: int) -> Iterator[int]:
    """Ports that the kernel gives out, all held at the same time."""
    held = []
    try:
        for _ in range(count):
            listener = socket.socket(family, socket.SOCK_STREAM)
            held.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
            listener.bind(("", 0))
            yield listener.getsockname()[1]
    finally:
        for listener in held:
            listener.close()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("reuse", [True, False])
def test_nobody_is_given_the_port_by_chance(held: lease.Lease, family: socket.AddressFamily, reuse: bool) -> None:
    assert held.master_port not in list(_free_ports(family, reuse, 500))


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_store_may_listen_on_the_port_and_be_reached(held: lease.Lease, family: socket.AddressFamily) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as store:
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            store.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        store.bind(("", held.master_port))
        store.listen()
        with socket.create_connection((held.address(1), held.master_port), timeout=5) as client:
            assert client.getpeername()[0] == held.address(1)


def test_the_port_is_free_for_the_next_rank_0(held: lease.Lease) -> None:
    for _ in range(2):
        with socket.socket() as store:
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("", held.master_port))
            store.listen()
