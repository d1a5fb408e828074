"""A network of a job's own: one switch, and for each host a namespace with an `eth0` plugged into it.

Containers always have one; other hosts where the request asks for a link of some speed.

The switch is a process in a network namespace of its own, so that nothing of this shows in this machine's. There is no
way out of it but one: the local cloud's own address, which answers inside every container and is relayed from there.
Namespaces and interfaces end with their processes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from smdp_launch.localcloud.namespaces import die_with_parent, refusal

INTERFACE = "eth0"
_BRIDGE = "br0"
_NETWORK = "10.0.0"  # of /24; nothing outside the switch ever sees it
_CLONE_NEWNET = 0x40000000
_READY = b"ready\n"
#: In a request's Environment: the speed of each host's link, such as "1gbit".
VARIABLE = "SMDP_LOCAL_NETWORK"
_SPEED = re.compile(r"(\d{1,6})(mbit|gbit)")
_BITS = {"mbit": 10**6, "gbit": 10**9}
_FASTEST = 400 * 10**9  # bits a second; of the link of the fastest instances
_BURST = 0.001  # seconds at full speed that may pass at once
_LEAST_BURST = 128 * 1024  # bytes; the system hands over packets of 64 KiB, and cuts those that no burst can hold
_QUEUE = "50ms"  # longer than any round trip here, so that a sender meets the link and not losses
_BLOCK = 64 * 1024  # bytes


class NetworkError(Exception):
    """The system refused a namespace or an interface; the message is its own."""


def address(host: int) -> str:
    """Of host `host`, counted from 1."""
    return f"{_NETWORK}.{host}"


@dataclass(frozen=True)
class Plug:
    """How a host gets onto the network.

    Args:
        switch: process id of the job's switch.
        address: the host's own.
        endpoint: URL of the local cloud, which goes on answering at the same address.
        speed: of the link, in bits a second each way; None for as fast as this machine is.
    """

    switch: int
    address: str
    endpoint: str
    speed: int | None


def bits_per_second(text: str) -> int:
    """Of a speed such as `1gbit` or `200mbit`. Raises ValueError."""
    match = _SPEED.fullmatch(text)
    speed = int(match[1]) * _BITS[match[2]] if match else 0
    if not 0 < speed <= _FASTEST:
        raise ValueError(f"{text!r} is no speed from 1mbit to 400gbit, such as 1gbit")
    return speed


def speed(request: Mapping[str, Any]) -> int | None:
    """What the request asks for; None where it asks for nothing. Raises NetworkError."""
    text = request.get("Environment", {}).get(VARIABLE)
    if text is None:
        return None
    reason = shaping_refusal()
    if reason is not None:
        raise NetworkError(reason)
    try:
        return bits_per_second(text)
    except ValueError as error:
        raise NetworkError(f"{VARIABLE}: {error}") from error


def shaping_refusal() -> str | None:
    """Why hosts cannot have links of a chosen speed here, or None where they can."""
    if os.geteuid() != 0:
        return "links of a chosen speed need root"
    if shutil.which("tc") is None:
        return "links of a chosen speed need tc (package iproute2)"
    return missing() or refusal()


def missing() -> str | None:
    """What a network of one's own needs and this machine lacks."""
    absent = [one for one in ("ip", "nsenter") if shutil.which(one) is None]
    return f"no {' and no '.join(absent)} (packages iproute2, util-linux)" if absent else None


class Switch:
    """Held by the supervisor for as long as its hosts run."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "smdp_launch.localcloud.network"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        answer = self._process.stdout.readline() if self._process.stdout else b""
        if answer != _READY:
            self.close()
            raise NetworkError(answer.decode(errors="replace").strip() or "the hosts' switch did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def join(plug: Plug, name: str) -> None:
    """Leave this machine's network for a namespace that is plugged into the switch.

    Args:
        name: of the host; becomes that of its port of the switch.
    """
    here = urlsplit(plug.endpoint)
    place = (here.hostname or "", here.port or 0)
    ours, relays = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        _relay(relays, place)
    relays.close()
    _unshare_network()
    _ip("link", "set", "lo", "up")
    _ip("link", "add", INTERFACE, "type", "veth", "peer", "name", name, "netns", str(plug.switch))
    _ip("address", "add", f"{plug.address}/24", "dev", INTERFACE)
    _ip("link", "set", INTERFACE, "up")
    at_switch = ("nsenter", f"--net=/proc/{plug.switch}/ns/net")
    _run(*at_switch, "ip", "link", "set", name, "master", _BRIDGE, "up")
    if plug.speed is not None:
        _run(*_shape(INTERFACE, plug.speed))
        _run(*at_switch, *_shape(name, plug.speed))
    with ours, socket.create_server(place) as listener:
        socket.send_fds(ours, [b"l"], [listener.fileno()])


def _shape(interface: str, speed: int) -> tuple[str, ...]:
    """The command that slows down what leaves through `interface`."""
    burst = max(_LEAST_BURST, round(speed * _BURST / 8))
    shaper = ("tbf", "rate", f"{speed}bit", "burst", f"{burst}b", "latency", _QUEUE)
    return ("tc", "qdisc", "add", "dev", interface, "root", *shaper)


def _relay(relays: socket.socket, place: tuple[str, int]) -> None:
    """A process that stays outside: takes connections of the listener that lies inside to the real address."""
    try:
        die_with_parent()
        _, descriptors, _, _ = socket.recv_fds(relays, 1, 1)
        if descriptors:
            asyncio.run(_serve(socket.socket(fileno=descriptors[0]), place))
    finally:
        os._exit(0)


async def _serve(listener: socket.socket, place: tuple[str, int]) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*place)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))

    server = await asyncio.start_server(connected, sock=listener)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while block := await reader.read(_BLOCK):
            writer.write(block)
            await writer.drain()
    except OSError:
        pass  # one side has gone; the other hears it by the end of its own stream
    finally:
        writer.close()


def _unshare_network() -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "unshare network")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        raise OSError(done.returncode, done.stderr.strip(), " ".join(command))


def _be_switch() -> int:
    die_with_parent()
    try:
        _unshare_network()
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("link", "set", _BRIDGE, "up")
    except OSError as error:
        sys.stdout.write(f"{error.filename}: {error.strerror}\n")
        return 1
    sys.stdout.buffer.write(_READY)
    sys.stdout.flush()
    sys.stdin.read()  # until the supervisor has gone
    return 0


if __name__ == "__main__":
    sys.exit(_be_switch())
