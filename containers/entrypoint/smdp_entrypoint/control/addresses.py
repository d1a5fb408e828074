"""Whether a caller has the address of the host that it says it is.

Without a secret in the job's environment this is what tells a host of the job from anybody else who can reach the
port: the platform gave the host its name and its address, and whoever is not there cannot finish a connection from it.
"""

from __future__ import annotations

import ipaddress
import threading
from pathlib import Path
from typing import Callable

from smdp_entrypoint.control.hosts import addresses


class AddressBook:
    """Looks a name up in a thread of its own, since the name service may block. Used from one other thread."""

    def __init__(self, hosts_file: Path, look_up: Callable[[Path, str], set[str]] = addresses) -> None:
        self._hosts_file = hosts_file
        self._look_up = look_up
        self._known: dict[str, set[str]] = {}
        self._asked: set[str] = set()

    def has(self, host: str, address: str) -> bool | None:
        """None while the name's addresses are not known: the caller calls again. They are looked up anew after a
        mismatch, which an old answer of the name service can cause."""
        known = self._known.get(host)
        found = known is not None and _plain(address) in known
        if not found:
            self._ask(host)
        return found if known is not None else None

    def _ask(self, host: str) -> None:
        if host not in self._asked:
            self._asked.add(host)
            threading.Thread(target=self._answer, args=[host], name=f"address of {host}", daemon=True).start()

    def _answer(self, host: str) -> None:
        try:
            found = {_plain(address) for address in self._look_up(self._hosts_file, host)}
            if found:
                self._known[host] = found
        except (OSError, UnicodeError):
            pass  # its name has no address yet
        finally:
            self._asked.discard(host)


def _plain(address: str) -> str:
    """One spelling of each: a socket of both families shows an IPv4 address as ::ffff:192.0.2.1."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
