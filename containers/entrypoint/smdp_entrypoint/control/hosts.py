"""Resolves the first host's name to an address.

Names may not resolve for a while after the containers start, so a failed look-up is retried with growing pauses.
The hosts file is read first and without the C library: on the platform it has the right address where it lists the
host, and where one machine simulates all hosts it has the only one.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from smdp_entrypoint.contract.errors import HostsError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 30.0
_LOG_INTERVAL_S = 30.0
# Debian's hosts file maps a machine's own name to this address, which other machines cannot use.
_OWN_NAME_ADDRESS = "127.0.1.1"


def lookup(host: str) -> str:
    """An address from the name service, IPv4 if the host has one. Raises OSError."""
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in sorted(entries, key=lambda entry: entry[0] != socket.AF_INET)]
    useful = [address for address in addresses if address != _OWN_NAME_ADDRESS]
    if not useful:
        raise OSError(f"it resolves to {_OWN_NAME_ADDRESS} only")
    return useful[0]


def addresses(hosts_file: Path, host: str) -> set[str]:
    """All addresses of a host: the one in the hosts file, else those of the name service. Raises OSError."""
    listed = read_hosts_file(hosts_file).get(host)
    if listed:
        return {listed}
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {str(entry[4][0]) for entry in entries} - {_OWN_NAME_ADDRESS}


@dataclass
class Resolver:
    hosts_file: Path
    say: Callable[[str], None]
    deadline: float
    lookup: Callable[[str], str] = lookup

    def first_address(self, hosts: list[str]) -> str:
        """The address of the first of `hosts`; the loopback address in a job of one host. Raises HostsError."""
        listed = read_hosts_file(self.hosts_file).get(hosts[0])
        if listed:
            return listed
        return "127.0.0.1" if len(hosts) == 1 else self._ask_until_deadline(hosts)

    def _ask_until_deadline(self, hosts: list[str]) -> str:
        start = last_log = time.monotonic()
        pause = _FIRST_PAUSE_S
        while True:
            remaining = start + self.deadline - time.monotonic()
            answer = self._ask(hosts[0], remaining)
            if isinstance(answer, str):
                return answer
            if remaining <= 0:
                raise HostsError(self._failure(hosts, answer))
            if time.monotonic() - last_log >= _LOG_INTERVAL_S or pause == _FIRST_PAUSE_S:
                last_log = time.monotonic()
                self.say(f"waiting for host {hosts[0]} to have an address, {last_log - start:.0f} s so far: {answer}")
            time.sleep(min(pause, remaining))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _ask(self, host: str, timeout: float) -> str | OSError:
        # The system's look-up may block for long, and no Python signal handler runs meanwhile. The entrypoint can
        # abandon the thread at a stop signal.
        answers: queue.Queue[str | OSError] = queue.Queue()

        def ask() -> None:
            try:
                answers.put(self.lookup(host))
            except (OSError, UnicodeError) as error:
                answers.put(error if isinstance(error, OSError) else OSError(str(error)))

        threading.Thread(target=ask, daemon=True).start()
        try:
            return answers.get(timeout=max(timeout, 0.001))
        except queue.Empty:
            return OSError("the name service does not answer")

    def _failure(self, hosts: list[str], reason: OSError) -> str:
        return (
            f"Host {hosts[0]} could not be found on the network within {self.deadline:g} s ({reason}). "
            f"It is the first of {', '.join(hosts)}. Read its log: it may have exited early. "
            "In a VPC, check the DNS settings."
        )


def read_hosts_file(path: Path) -> dict[str, str]:
    """The address of each name: its first entry, IPv4 before IPv6, as in the C library."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    addresses: dict[str, str] = {}
    for line in lines:
        address, *names = line.partition("#")[0].split() or [""]
        if _is_useful(address):
            for name in names:
                if name not in addresses or (":" in addresses[name] and ":" not in address):
                    addresses[name] = address
    return addresses


def _is_useful(address: str) -> bool:
    try:
        ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return address != _OWN_NAME_ADDRESS
