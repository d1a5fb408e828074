"""The way out of a host that has a network of its own: a process outside, which answers at two addresses inside.

The sockets are made inside, where nothing else listens, and are handed to the process. Connections to the first go to
the same address outside, which is the local cloud's. The second is an HTTP proxy (RFC 9110, sections 7.1 and 9.3.6):
`CONNECT` for TLS, absolute addresses for the rest. It connects to no address of this machine, and to none at which a
cloud's instances find their credentials.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

from smdp_launch.localcloud.isolation.namespaces import die_with_parent

_BLOCK = 64 * 1024  # bytes
_LONGEST_HEAD = 64 * 1024  # bytes of a request to the proxy, without its body
_HEAD_WAIT = 30.0  # seconds for that head
_CONNECT_WAIT = 30.0  # seconds for a server outside to accept

#: Where EC2 instances find their credentials over IPv6. The IPv4 address is link-local.
_METADATA = ipaddress.ip_address("fd00:ec2::254")

Place = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RefusedError(Exception):
    """The proxy's answer: an HTTP status line, without its version."""


class Outside:
    """The process. Made before this one leaves this machine's network, it ends with this one."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        if os.fork() == 0:
            self._ours.close()
            _be_outside(theirs)
        theirs.close()

    def __enter__(self) -> Outside:
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.close()

    def serve(self, direct: str, proxy: str) -> None:
        """Answer at both addresses (ADDRESS:PORT) of the network that this process has by now."""
        with socket.create_server(_place(direct)) as first, socket.create_server(_place(proxy)) as second:
            socket.send_fds(self._ours, [direct.encode()], [first.fileno(), second.fileno()])


def _place(text: str) -> Place:
    address, _, port = text.rpartition(":")
    return address, int(port)


def _be_outside(channel: socket.socket) -> None:
    try:
        die_with_parent()
        direct, descriptors, _, _ = socket.recv_fds(channel, 256, 2)
        if descriptors:
            first, second = (socket.socket(fileno=one) for one in descriptors)
            asyncio.run(_serve(first, _place(direct.decode()), second))
    finally:
        os._exit(0)


async def _serve(direct: socket.socket, place: Place, proxy: socket.socket) -> None:
    async def to_place(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _relayed((reader, writer), lambda: asyncio.open_connection(*place))

    async def to_anywhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _relayed((reader, writer), lambda: _connected(reader, writer))

    servers = [
        await asyncio.start_server(to_place, sock=direct),
        await asyncio.start_server(to_anywhere, sock=proxy, limit=_LONGEST_HEAD),
    ]
    await asyncio.gather(*(one.serve_forever() for one in servers))


async def _relayed(near: Streams, connect: Callable[[], Awaitable[Streams]]) -> None:
    try:
        far = await connect()
    except RefusedError as error:
        near[1].write(f"HTTP/1.1 {error}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        near[1].close()
    except OSError:
        near[1].close()
    else:
        with suppress(OSError):  # one side has gone
            await asyncio.gather(_copy(near[0], far[1]), _copy(far[0], near[1]))
        near[1].close()
        far[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Until the reader's side has sent all; the writer's side may still have something to send."""
    while block := await reader.read(_BLOCK):
        writer.write(block)
        await writer.drain()
    writer.write_eof()


async def _connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Streams:
    """To what the proxy's client asks for, which gets what follows. Raises RefusedError."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_WAIT)
        method, target, place = _asked(head)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError, ValueError):
        raise RefusedError("400 Bad Request") from None
    address = await _resolved(place)
    try:
        far = await asyncio.wait_for(asyncio.open_connection(address, place[1]), _CONNECT_WAIT)
    except (OSError, asyncio.TimeoutError):
        raise RefusedError("504 Gateway Timeout") from None
    if far[1].get_extra_info("sockname")[0] == far[1].get_extra_info("peername")[0]:
        far[1].close()
        raise RefusedError("403 Forbidden")  # an address of this machine
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        far[1].write(_as_sent(head, method, target))
    return far


def _asked(head: bytes) -> tuple[str, str, Place]:
    """Method, target and the server that the target names. Raises ValueError."""
    method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
    if not parts.hostname or (method != "CONNECT" and parts.scheme != "http"):
        raise ValueError(target)
    return method, target, (parts.hostname, parts.port or (443 if method == "CONNECT" else 80))


def _as_sent(head: bytes, method: str, target: str) -> bytes:
    """The head of a request as the server itself expects it, for this one request: the next may be for another."""
    parts = urlsplit(target)
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    lines = head.split(b"\r\n")[1:-2]
    kept = [one for one in lines if one.partition(b":")[0].lower() not in (b"connection", b"proxy-connection")]
    return b"\r\n".join([f"{method} {path} HTTP/1.1".encode(), *kept, b"Connection: close", b"", b""])


async def _resolved(place: Place) -> str:
    """The first address that the proxy may connect to. Raises RefusedError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(*place, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: a name that no DNS can have
        raise RefusedError("502 Bad Gateway") from None
    for *_, socket_address in found:
        if not _is_barred(str(socket_address[0])):
            return str(socket_address[0])
    raise RefusedError("403 Forbidden")


def _is_barred(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    is_special = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return is_special or address.is_reserved or address == _METADATA
