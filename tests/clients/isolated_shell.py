"""Runs a client in a shell with the exports of `local up`, in a network namespace without a route."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT, clean_environment

# Names are looked up at an address without a route (RFC 5737), so that a look-up counts too. The last one proves that
# the kernel counts.
_SHELL = """
ip link set lo up
echo "nameserver 192.0.2.1" > resolv.conf
mount --bind resolv.conf /etc/resolv.conf
eval "$(smdp-launch local up)"
python -c 'import boto3; boto3.client("s3").create_bucket(Bucket="mine")'
"$CLIENT" client.py
code=$?
left=$(awk '$1 == "Ip:" {value = $13} $1 == "Ip6OutNoRoutes" {other = $2} END {print value + other}' \
    /proc/net/snmp /proc/net/snmp6)
smdp-launch local down --grace 1
python -c 'import socket; socket.getaddrinfo("sts.us-east-1.amazonaws.com", 443)' 2>/dev/null
echo "packets that had no route: $left, then $(awk '$1 == "Ip:" {value = $13} END {print value}' /proc/net/snmp)"
exit $code
"""


@dataclass(frozen=True)
class Ran:
    code: int
    output: str

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    @property
    def packets_without_route(self) -> int:
        """The number of attempts of the client, or of its job, to reach another machine."""
        (line,) = [one for one in self.lines if one.startswith("packets that had no route: ")]
        left, then = line.removeprefix("packets that had no route: ").split(", then ")
        assert int(then) > 0, "the kernel does not count what has no route"
        return int(left)


def run_client(client: Path, script: str, folder: Path, seconds: float = 580) -> Ran:
    """A Python script, run by the Python `client`.

    Returns:
        With all that the shell printed; standard error in between.
    """
    (folder / "client.py").write_text(textwrap.dedent(script))
    (folder / "home").mkdir(exist_ok=True)
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = clean_environment(HOME=str(folder / "home"), PATH=programs, CLIENT=str(client), PYTHONPATH=str(ROOT))
    isolated = ("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
    ran = subprocess.run(
        [*isolated, "bash", "-c", _SHELL],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout)
