"""A relay for hosts with a network of their own: a process outside the network that answers at two addresses inside.

The sockets are created inside, where nothing else listens, and are passed to the process. It relays connections to the
first address to the same address outside, that of the local cloud. The second is an HTTP proxy (RFC 9110, sections 7.1
and 9.3.6): `CONNECT` for TLS, absolute addresses for the rest. The proxy connects neither to addresses of this machine
nor to addresses at which cloud instances find their credentials.
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
_LONGEST_HEAD = 64 * 1024  # bytes of a request's head to the proxy
_HEAD_TIMEOUT = 30.0  # seconds for that head
_CONNECT_TIMEOUT = 30.0  # seconds for a server outside to accept

#: Where EC2 instances find their credentials over IPv6. The IPv4 address is link-local.
_METADATA = ipaddress.ip_address("fd00:ec2::254")

Address = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RefusedError(Exception):
    """The proxy's answer: an HTTP status line, without its version."""


class Relay:
    """The process. Create it before this process leaves this machine's network; it ends with this process."""

    def __init__(self) -> None:
        self._parent_end, child_end = socket.socketpair()
        if os.fork() == 0:
            self._parent_end.close()
            _run(child_end)
        child_end.close()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._parent_end.close()

    def serve(self, direct: str, proxy: str) -> None:
        """Answer at both addresses (ADDRESS:PORT) of the network that this process is in now."""
        with socket.create_server(_address(direct)) as first, socket.create_server(_address(proxy)) as second:
            socket.send_fds(self._parent_end, [direct.encode()], [first.fileno(), second.fileno()])


def _address(text: str) -> Address:
    name, _, port = text.rpartition(":")
    return name, int(port)


def _run(channel: socket.socket) -> None:
    try:
        die_with_parent()
        direct, descriptors, _, _ = socket.recv_fds(channel, 256, 2)
        if descriptors:
            first, second = (socket.socket(fileno=one) for one in descriptors)
            asyncio.run(_serve(first, _address(direct.decode()), second))
    finally:
        os._exit(0)


async def _serve(direct: socket.socket, target: Address, proxy: socket.socket) -> None:
    async def to_target(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _relay((reader, writer), lambda: asyncio.open_connection(*target))

    async def by_proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _relay((reader, writer), lambda: _connect(reader, writer))

    servers = [
        await asyncio.start_server(to_target, sock=direct),
        await asyncio.start_server(by_proxy, sock=proxy, limit=_LONGEST_HEAD),
    ]
    await asyncio.gather(*(one.serve_forever() for one in servers))


async def _relay(near: Streams, connect: Callable[[], Awaitable[Streams]]) -> None:
    try:
        far = await connect()
    except RefusedError as error:
        near[1].write(f"HTTP/1.1 {error}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        near[1].close()
    except OSError:
        near[1].close()
    else:
        with suppress(OSError):  # one side has closed the connection
            await asyncio.gather(_copy(near[0], far[1]), _copy(far[0], near[1]))
        near[1].close()
        far[1].close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the reader's side has sent everything; the other direction may continue."""
    while block := await reader.read(_BLOCK):
        writer.write(block)
        await writer.drain()
    writer.write_eof()


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Streams:
    """Connect to the server that the proxy's client names. Raises RefusedError."""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_TIMEOUT)
        method, target, server = _parsed(head)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError, ValueError):
        raise RefusedError("400 Bad Request") from None
    address = await _resolved(server)
    try:
        far = await asyncio.wait_for(asyncio.open_connection(address, server[1]), _CONNECT_TIMEOUT)
    except (OSError, asyncio.TimeoutError):
        raise RefusedError("504 Gateway Timeout") from None
    if far[1].get_extra_info("sockname")[0] == far[1].get_extra_info("peername")[0]:
        far[1].close()
        raise RefusedError("403 Forbidden")  # an address of this machine
    if method == "CONNECT":
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    else:
        far[1].write(_for_server(head, method, target))
    return far


def _parsed(head: bytes) -> tuple[str, str, Address]:
    """Method, target and the server that the target names. Raises ValueError."""
    method, target, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
    if not parts.hostname or (method != "CONNECT" and parts.scheme != "http"):
        raise ValueError(target)
    return method, target, (parts.hostname, parts.port or (443 if method == "CONNECT" else 80))


def _for_server(head: bytes, method: str, target: str) -> bytes:
    """The head in the form that a server expects. The connection ends with the request: the next one may name another
    server."""
    parts = urlsplit(target)
    path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    lines = head.split(b"\r\n")[1:-2]
    kept = [one for one in lines if one.partition(b":")[0].lower() not in (b"connection", b"proxy-connection")]
    return b"\r\n".join([f"{method} {path} HTTP/1.1".encode(), *kept, b"Connection: close", b"", b""])


async def _resolved(server: Address) -> str:
    """The server's first address that the proxy may connect to. Raises RefusedError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(*server, type=socket.SOCK_STREAM)
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
