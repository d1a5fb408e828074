"""A network of a job's own: one switch, and for each host a namespace with an `eth0` connected to it.

Containers always have one. Other hosts have one where the request names it, or where the request names the command
that they run: such commands listen on fixed ports, which two jobs cannot use on one network.

The switch is a process in a network namespace of its own, so this machine's namespace has no interface of it. Inside
every host two addresses are relayed (`relay`) to this machine: that of the local cloud, and that of an HTTP proxy
through which the job's script reaches the internet. Namespaces and interfaces end with their processes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from smdp_launch.catalog.local_cloud import OWN_NETWORK
from smdp_launch.localcloud.isolation import namespaces, relay, remedy

INTERFACE = "eth0"
_BRIDGE = "br0"
_NETWORK = "10.0.0"  # of /24; visible only behind the switch
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000
_READY = "ready"
#: In a request's Environment: the speed of each host's link, such as "1gbit", or `OWN_NETWORK`.
VARIABLE = "SMDP_LOCAL_NETWORK"
_SPEED = re.compile(r"(\d{1,6})(mbit|gbit)")
_BITS = {"mbit": 10**6, "gbit": 10**9}
_FASTEST = 400 * 10**9  # bits a second: the link of the fastest instances
_BURST = 0.001  # seconds at full speed that may pass at once
_LEAST_BURST = 128 * 1024  # bytes; the system sends packets of 64 KiB, and drops those larger than a burst
_QUEUE = "50ms"  # longer than any local round trip, so that the link's speed limits a sender, not lost packets
#: The switch's command: it ends with the supervisor, which has the other end of its standard input.
_SWITCH = f"ip link add {_BRIDGE} type bridge && ip link set {_BRIDGE} up && echo {_READY} && read -r _"
#: A hyperparameter under which every host listens on the same port.
_FIXED_PORT_FLAG = "sagemaker_multi_worker_mirrored_strategy_enabled"
_PROXY = "127.0.0.2:3128"  # inside a host: an address that no script uses


class NetworkError(Exception):
    """The system refused a namespace or an interface; the message is the system's."""


def address(host: int) -> str:
    """The address of host `host`, counted from 1."""
    return f"{_NETWORK}.{host}"


@dataclass(frozen=True)
class Plug:
    """How a host is connected to the job's network.

    Args:
        switch: process id of the job's switch.
        address: the host's address.
        endpoint: URL of the local cloud, which answers at the same address inside the host; empty for a host that
            reaches only the other hosts.
        speed: of the link, in bits a second each way; None for no limit.
    """

    switch: int
    address: str
    endpoint: str
    speed: int | None

    @property
    def is_isolated(self) -> bool:
        """Whether the host reaches only the other hosts."""
        return not self.endpoint


def bits_per_second(text: str) -> int:
    """The bits a second of a speed such as `1gbit` or `200mbit`. Raises ValueError."""
    match = _SPEED.fullmatch(text)
    speed = int(match[1]) * _BITS[match[2]] if match else 0
    if not 0 < speed <= _FASTEST:
        raise ValueError(f"{text!r} is neither a speed from 1mbit to 400gbit, such as 1gbit, nor {OWN_NETWORK!r}")
    return speed


def requested(request: Mapping[str, Any]) -> bool:
    """Whether the request names a network of the job's own. Containers always have one."""
    return VARIABLE in request.get("Environment", {})


def recommended(request: Mapping[str, Any]) -> bool:
    """Whether the job gets a network of its own where the system allows one, although the request does not name it."""
    algorithm = request["AlgorithmSpecification"]
    return bool(
        algorithm.get("ContainerEntrypoint")
        or algorithm.get("ContainerArguments")
        or request.get("EnableNetworkIsolation")
        or request.get("HyperParameters", {}).get(_FIXED_PORT_FLAG, "").lower() == "true"
    )


def speed(request: Mapping[str, Any]) -> int | None:
    """The speed in bits a second that the request names; None where it names none. Raises NetworkError."""
    text = request.get("Environment", {}).get(VARIABLE)
    if text in (None, OWN_NETWORK):
        return None
    reason = shaping_refusal()
    if reason is not None:
        raise NetworkError(reason)
    try:
        return bits_per_second(text)
    except ValueError as error:
        raise NetworkError(f"{VARIABLE}: {error}") from error


def shaping_refusal() -> str | None:
    """Why hosts cannot have links with a speed limit; None where they can."""
    if os.geteuid() != 0:
        return "links with a speed limit need root"
    if shutil.which("tc") is None:
        return "links with a speed limit need tc (package iproute2)"
    return refusal()


def refusal() -> str | None:
    """Why hosts cannot have a network of their own; None where they can."""
    reason = namespaces.refusal()
    return missing() or (remedy.explained(reason, "a network of the job's own") if reason is not None else None)


def missing() -> str | None:
    """The programs that a network of the job's own needs and this machine does not have; None where it has all."""
    absent = [one for one in ("ip", "nsenter", "unshare") if shutil.which(one) is None]
    return f"no {' and no '.join(absent)} (packages iproute2, util-linux)" if absent else None


def proxy_variables(addresses: Mapping[str, str]) -> dict[str, str]:
    """Variables that send the HTTP clients of a host to the proxy, except for the hosts themselves.

    Args:
        addresses: of all hosts, by name.
    """
    direct = ",".join(("localhost", "127.0.0.1", "::1", *addresses, *addresses.values()))
    variables = {"http_proxy": f"http://{_PROXY}", "https_proxy": f"http://{_PROXY}", "no_proxy": direct}
    return variables | {name.upper(): value for name, value in variables.items()}


class Switch:
    """The process of a job's switch. The supervisor closes it after the hosts have ended."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["unshare", *_as_root(), "--net", "sh", "-c", _SWITCH],  # noqa: S607 (util-linux, found on the PATH)
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        answer = self._process.stdout.readline() if self._process.stdout else b""
        if answer.decode().strip() != _READY:
            self.close()
            raise NetworkError(answer.decode(errors="replace").strip() or "the hosts' switch did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def open_switch() -> Switch:
    """Raises NetworkError where the hosts cannot have a network of their own."""
    reason = refusal()
    if reason is not None:
        raise NetworkError(reason)
    return Switch()


def _as_root() -> tuple[str, ...]:
    """Without root a network namespace needs a user namespace, which the hosts enter before they create theirs."""
    return () if os.geteuid() == 0 else ("--user", "--map-root-user")


def join(plug: Plug, name: str) -> None:
    """Enter a network namespace of this process's own, and connect it to the switch.

    Args:
        name: of the host; also of its port at the switch.
    """
    with relay.Relay() as host_relay:
        _unshare(plug.switch)
        at_switch = ("nsenter", f"--net=/proc/{plug.switch}/ns/net")
        _ip(
            "link set lo up",
            f"link add {INTERFACE} type veth peer name {name} netns {plug.switch}",
            f"address add {plug.address}/24 dev {INTERFACE}",
            f"link set {INTERFACE} up",
        )
        _run(*at_switch, "ip", "link", "set", name, "master", _BRIDGE, "up")
        if plug.speed is not None:
            _run(*_shape(INTERFACE, plug.speed))
            _run(*at_switch, *_shape(name, plug.speed))
        if not plug.is_isolated:
            host_relay.serve(urlsplit(plug.endpoint).netloc, _PROXY)


def _shape(interface: str, speed: int) -> tuple[str, ...]:
    """The command that limits the speed of outgoing traffic on `interface`."""
    burst = max(_LEAST_BURST, round(speed * _BURST / 8))
    shaper = ("tbf", "rate", f"{speed}bit", "burst", f"{burst}b", "latency", _QUEUE)
    return ("tc", "qdisc", "add", "dev", interface, "root", *shaper)


def _unshare(switch: int) -> None:
    """Enter a network namespace of this process's own. Without root, enter the user namespace of the switch first."""
    if os.geteuid() != 0:
        with Path(f"/proc/{switch}/ns/user").open() as users:
            namespaces.call("setns", users.fileno(), _CLONE_NEWUSER)
    namespaces.call("unshare", _CLONE_NEWNET)


def _ip(*commands: str) -> None:
    _run("ip", "-batch", "-", text="\n".join(commands))


def _run(*command: str, text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        raise OSError(done.returncode, done.stderr.strip(), " ".join(command))
