"""The sending end of measured links: connects to other hosts, sends pings, and sends bytes at full speed."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from typing import Any, Collection

from smdp_entrypoint.control.link import CallingLink, LinkError
from smdp_entrypoint.network.connection import (
    LARGEST_CHUNK,
    PINGS,
    Sockets,
    bulk,
    next_message,
    prove,
    send_all,
)
from smdp_entrypoint.network.flow import Flow, Sample, least_round_trip, rate
from smdp_entrypoint.network.messages import Call, Round, Value
from smdp_entrypoint.network.rails import Rail

_NO_ANSWER = "it did not answer in time"
_TOGETHER = "another connection of the link failed"
# A thread that has reached its deadline closes its connection before it reports.
_LAST_S = 0.05


class Caller:
    """Runs the calls of rounds, as host `own`."""

    def __init__(self, own: str, rails: Collection[Rail], key: bytes) -> None:
        self.own, self._key = own, key
        self._rails = {rail.name: rail for rail in rails}
        self._main = next(iter(rails)) if rails else None
        self._sockets = Sockets()
        self._content = _content()

    def close(self) -> None:
        """End the calls of a running round."""
        self._sockets.close()

    def release(self) -> None:
        """Close what the calls share, once no call runs."""
        if self._content is not None:
            os.close(self._content)
            self._content = None

    def start(self, round_: Round) -> Calls:
        calls = Calls(self, round_)
        calls.start()
        return calls

    def connect(self, call: Call, round_: Round, deadline: float) -> socket.socket:
        """A connection whose other end is ready to be measured. Raises LinkError and OSError."""
        connection = self._connect(call, deadline)
        self._sockets.add(connection)
        try:
            link = CallingLink(connection, self._key, self.own, call.host)
            prove(link, deadline)
            limit = max(0.0, deadline - time.monotonic())
            link.send("rate" if round_.streams else "latency", limit=limit)
            send_all(link, deadline)
            next_message(link, deadline)
            bulk(connection)
        except BaseException:
            self.close_connection(connection)
            raise
        return connection

    def close_connection(self, connection: socket.socket) -> None:
        self._sockets.remove(connection)

    def _connect(self, call: Call, deadline: float) -> socket.socket:
        connection = socket.socket(socket.AF_INET6 if ":" in call.address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            rail = self._rails.get(call.rail) or self._main
            if rail is not None:
                with contextlib.suppress(OSError):  # needs a privilege in older kernels; the address decides then
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, rail.name.encode() + b"\0")
                with contextlib.suppress(OSError):  # the network translates addresses
                    connection.bind((rail.address, 0))
            connection.settimeout(max(0.001, deadline - time.monotonic()))
            connection.connect((call.address, call.port))
        except BaseException:
            connection.close()
            raise
        return connection

    def send(self, connection: socket.socket, chunk: int, until: float) -> None:
        """Send at full speed until this monotonic time. Raises OSError."""
        data = b"" if self._content is not None else bytes(chunk)
        while time.monotonic() < until:
            with contextlib.suppress(BlockingIOError):
                if self._content is not None:
                    os.sendfile(connection.fileno(), self._content, 0, chunk)
                else:
                    connection.send(data)


class Calls:
    """The calls of one round, each connection in a thread of its own."""

    def __init__(self, caller: Caller, round_: Round) -> None:
        self._caller, self._round = caller, round_
        self._deadline = time.monotonic() + round_.limit
        self._calls = [_LinkCall(caller, call, round_, self._deadline) for call in round_.calls]

    def start(self) -> None:
        for call in self._calls:
            call.start()

    def values(self) -> list[Value]:
        """Wait for the values of all links, until the end of the round."""
        return [call.value() for call in self._calls]


class _LinkCall:
    """The connections of one link. They start to send together, once all are connected, so that the sum of their rates
    is that of the link."""

    def __init__(self, caller: Caller, call: Call, round_: Round, deadline: float) -> None:
        self._caller, self._call, self._round, self._deadline = caller, call, round_, deadline
        self._together = threading.Barrier(max(1, round_.streams))
        self._results: queue.SimpleQueue[Flow | float | str] = queue.SimpleQueue()

    def start(self) -> None:
        for _ in range(self._together.parties):
            thread = threading.Thread(target=self._run, name="network call", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the container's limit of threads
                self._results.put(str(error))
                self._together.abort()

    def value(self) -> Value:
        results: list[Any] = []
        for _ in range(self._together.parties):
            with contextlib.suppress(queue.Empty):
                results.append(self._results.get(timeout=max(0.0, self._deadline - time.monotonic()) + _LAST_S))
        errors = sorted((one for one in results if isinstance(one, str)), key=lambda one: one == _TOGETHER)
        if errors or len(results) < self._together.parties:
            return self._made(None, errors[0] if errors else _NO_ANSWER)
        if not self._round.streams:
            return self._made(float(results[0]), "")
        measured = rate(results)
        return self._made(measured, "" if measured is not None else "no bytes were sent in time")

    def _made(self, value: float | None, error: str) -> Value:
        return Value(self._caller.own, self._call.host, self._call.rail, value, error)

    def _run(self) -> None:
        try:
            self._results.put(self._measure())
        except threading.BrokenBarrierError:
            self._results.put(_TOGETHER)
        except (LinkError, OSError) as error:
            self._results.put(_reason(error))
            self._together.abort()

    def _measure(self) -> Flow | float:
        connection = self._caller.connect(self._call, self._round, self._deadline)
        try:
            if not self._round.streams:
                return _latency(connection, self._deadline)
            self._together.wait(max(0.0, self._deadline - time.monotonic()))
            begin = time.monotonic() + self._round.skip
            self._caller.send(connection, self._round.chunk, min(begin, self._deadline))
            flow = self._flow(connection, begin + self._round.window)
            # On a busy host, this thread may not have run in the window. Of several connections none is measured again:
            # it would have the link to itself, and the sum would exceed the link's rate.
            while self._round.streams == 1 and rate([flow]) is None and time.monotonic() < self._deadline:
                flow = self._flow(connection, time.monotonic() + self._round.window)
            return flow
        finally:
            self._caller.close_connection(connection)

    def _flow(self, connection: socket.socket, end: float) -> Flow:
        first = Sample.of(connection)
        self._caller.send(connection, self._round.chunk, min(end, self._deadline))
        return Flow(first, Sample.of(connection))


def _reason(error: Exception) -> str:
    if isinstance(error, socket.timeout):
        return _NO_ANSWER
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _latency(connection: socket.socket, deadline: float) -> float:
    """In seconds, of the shortest round trip."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    trips: list[float] = []
    while len(trips) < PINGS:
        begin = time.monotonic()
        connection.sendall(b"\0")
        while True:
            if time.monotonic() > deadline:
                raise LinkError(_NO_ANSWER)
            with contextlib.suppress(BlockingIOError):
                if not connection.recv(1):
                    raise LinkError("it closed the connection")
                break
        trips.append(time.monotonic() - begin)
    return least_round_trip(connection) or min(trips)


def _content() -> int | None:
    """A file in memory whose pages the system sends without a copy; None where there is none."""
    create: Any = getattr(os, "memfd_create", None)
    if create is None:
        return None
    try:
        content: int = create("network-probe")
    except OSError:
        return None
    try:
        os.write(content, bytes(LARGEST_CHUNK))
    except OSError:
        os.close(content)
        return None
    return content
