"""Checks that a client connects from the address of the host that it claims to be.

In a job without a secret in its environment, this check keeps other clients out that can reach the port: the platform
assigns each host its name and address, and only that host can complete a connection from that address.
"""

from __future__ import annotations

import ipaddress
import threading
from pathlib import Path
from typing import Callable

from smdp_entrypoint.control.hosts import addresses


class AddressBook:
    """Looks up names in separate threads, since the name service may block. Only one other thread may use it."""

    def __init__(self, hosts_file: Path, look_up: Callable[[Path, str], set[str]] = addresses) -> None:
        self._hosts_file = hosts_file
        self._look_up = look_up
        self._known: dict[str, set[str]] = {}
        self._pending: set[str] = set()

    def has(self, host: str, address: str) -> bool | None:
        """Whether the host has this address, or None until its addresses are known; the client then connects again.

        A mismatch starts a new look-up, since the name service may have returned an outdated address."""
        known = self._known.get(host)
        matches = known is not None and _plain(address) in known
        if not matches:
            self._start_lookup(host)
        return matches if known is not None else None

    def _start_lookup(self, host: str) -> None:
        if host not in self._pending:
            self._pending.add(host)
            threading.Thread(target=self._run_lookup, args=[host], name=f"address of {host}", daemon=True).start()

    def _run_lookup(self, host: str) -> None:
        try:
            addresses_of_host = {_plain(address) for address in self._look_up(self._hosts_file, host)}
            if addresses_of_host:
                self._known[host] = addresses_of_host
        except (OSError, UnicodeError):
            pass  # the name has no address yet
        finally:
            self._pending.discard(host)


def _plain(address: str) -> str:
    """The canonical form of an address: a dual-stack socket shows an IPv4 address as ::ffff:192.0.2.1."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
