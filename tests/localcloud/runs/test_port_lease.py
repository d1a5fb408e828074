"""The leased port of rank 0's store: the kernel assigns it to no other socket, and the store can listen on it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from smdp_launch.localcloud.runtime import port_lease


@pytest.fixture
def leased() -> Iterator[port_lease.Lease]:
    taken = port_lease.take("ports")
    yield taken
    taken.release()


def _free_ports(family: socket.AddressFamily, reuse: bool, count: int) -> Iterator[int]:
    """Ports that the kernel assigns, all bound at the same time."""
    listeners = []
    try:
        for _ in range(count):
            listener = socket.socket(family, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(reuse))
            listener.bind(("", 0))
            yield listener.getsockname()[1]
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize("reuse", [True, False])
def test_kernel_never_assigns_the_leased_port(
    leased: port_lease.Lease, family: socket.AddressFamily, reuse: bool
) -> None:
    assert leased.master_port not in list(_free_ports(family, reuse, 500))


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_store_can_listen_on_the_leased_port(leased: port_lease.Lease, family: socket.AddressFamily) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as store:
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            store.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        store.bind(("", leased.master_port))
        store.listen()
        with socket.create_connection((leased.address(1), leased.master_port), timeout=5) as client:
            assert client.getpeername()[0] == leased.address(1)


def test_leased_port_can_be_used_again_by_the_next_rank_0(leased: port_lease.Lease) -> None:
    for _ in range(2):
        with socket.socket() as store:
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("", leased.master_port))
            store.listen()
