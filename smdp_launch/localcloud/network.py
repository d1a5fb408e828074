"""The network of a job's containers: one switch, and for each host a namespace with an `eth0` plugged into it.

The switch is a process in a network namespace of its own, so that nothing of this shows in this machine's. There is no
way out of it but one: the local cloud's own address, which answers inside every container and is relayed from there.
Namespaces and interfaces end with their processes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import socket
import subprocess
import sys
from urllib.parse import urlsplit

from smdp_launch.localcloud.namespaces import die_with_parent

INTERFACE = "eth0"
_BRIDGE = "br0"
_NETWORK = "10.0.0"  # of /24; nothing outside the switch ever sees it
_CLONE_NEWNET = 0x40000000
_READY = b"ready\n"
_BLOCK = 64 * 1024  # bytes


class NetworkError(Exception):
    """The system refused a namespace or an interface; the message is its own."""


def address(host: int) -> str:
    """Of host `host`, counted from 1."""
    return f"{_NETWORK}.{host}"


def missing() -> str | None:
    """What containers' networks need and this machine lacks."""
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
            raise NetworkError(answer.decode(errors="replace").strip() or "the containers' switch did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def join(switch: int, name: str, own_address: str, endpoint: str) -> None:
    """Leave this machine's network for a namespace that is plugged into the switch of process `switch`.

    Args:
        name: of the host; becomes that of its port of the switch.
        endpoint: URL of the local cloud, which goes on answering at the same address.
    """
    here = urlsplit(endpoint)
    place = (here.hostname or "", here.port or 0)
    ours, relays = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        _relay(relays, place)
    relays.close()
    _unshare_network()
    _ip("link", "set", "lo", "up")
    _ip("link", "add", INTERFACE, "type", "veth", "peer", "name", name, "netns", str(switch))
    _ip("address", "add", f"{own_address}/24", "dev", INTERFACE)
    _ip("link", "set", INTERFACE, "up")
    _run("nsenter", f"--net=/proc/{switch}/ns/net", "ip", "link", "set", name, "master", _BRIDGE, "up")
    with ours, socket.create_server(place) as listener:
        socket.send_fds(ours, [b"l"], [listener.fileno()])


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
