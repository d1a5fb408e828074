"""Hosts with real links: a network namespace for each, joined by one switch for each rail. Needs root.

Namespaces belong to processes, and end with them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Mapping, Sequence

NETWORK = "10.77"  # visible only in the namespaces; rail r has .r.0/24
_MTU = 9001  # bytes, as between EC2 instances
_BURST = 32 * 1024  # bytes; more than the largest packet of the rates in use
_HOLD = "echo ready && read -r _"


def refusal() -> str | None:
    """Why this machine cannot have such hosts; None where it can."""
    missing = [tool for tool in ("ip", "tc", "nsenter", "unshare") if shutil.which(tool) is None]
    if missing:
        return f"no {', '.join(missing)}"
    if os.geteuid() != 0:
        return "needs root"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip() or None if done.returncode else None


def address(number: int, rail: int = 0) -> str:
    """The address of host `number`, counted from 0."""
    return f"{NETWORK}.{rail}.{number + 1}"


class Links:
    """`prefixes` has for each host the command before a command that runs on it."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self.prefixes: list[list[str]] = []
        self._switch: list[str] = []

    def build(self, hosts: int, mbit: int, rails: int, missing: Mapping[int, int]) -> None:
        """Args:
        mbit: speed of each link, both ways.
        missing: the rail that a host lacks, by the host's number.
        """
        self._switch = self._namespace()
        for rail in range(rails):
            self._run(self._switch, f"ip link add br{rail} type bridge", f"ip link set br{rail} up")
        for number in range(hosts):
            self.prefixes.append(self._namespace())
            self._run(self.prefixes[-1], "ip link set lo up")
            for rail in range(rails):
                if missing.get(number) != rail:
                    self._connect(number, rail)
                    self.shape(number, mbit, rail, "add")

    def shape(self, number: int, mbit: float, rail: int = 0, verb: str = "change", *, one_way: bool = False) -> None:
        kbit = round(mbit * 1000)
        tbf = f"root tbf rate {kbit}kbit burst {_BURST}b latency 50ms"
        self._run(self.prefixes[number], f"tc qdisc {verb} dev eth{rail} {tbf}")
        if not one_way:
            self._run(self._switch, f"tc qdisc {verb} dev h{number}r{rail} {tbf}")

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def _connect(self, number: int, rail: int) -> None:
        at_switch, interface = f"h{number}r{rail}", f"eth{rail}"
        switch = self._switch[1].split("/")[2]
        self._run(
            self.prefixes[number],
            f"ip link add {interface} mtu {_MTU} type veth peer name {at_switch} mtu {_MTU} netns {switch}",
            f"ip address add {address(number, rail)}/24 dev {interface}",
            f"ip link set {interface} up",
        )
        self._run(self._switch, f"ip link set {at_switch} master br{rail} up")

    def _namespace(self) -> list[str]:
        process = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        return ["nsenter", f"--net=/proc/{process.pid}/ns/net"]

    @staticmethod
    def _run(prefix: Sequence[str], *commands: str) -> None:
        for command in commands:
            done = subprocess.run([*prefix, *command.split()], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{command}: {done.stderr}"


@contextmanager
def links(hosts: int, mbit: int, rails: int = 1, missing: Mapping[int, int] | None = None) -> Iterator[Links]:
    made = Links()
    try:
        made.build(hosts, mbit, rails, missing or {})
        yield made
    finally:
        made.close()


def write_hosts_file(path: Path, names: Sequence[str]) -> str:
    lines = [f"{address(number)} {name}\n" for number, name in enumerate(names)]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)
