"""Which host of an endpoint answers a request, and the request itself.

A variant is chosen by its weight, and of its hosts the one with the fewest requests in progress. A host that refuses
the connection has not seen the request, so the request goes to the next one.
"""

from __future__ import annotations

import http.client
import math
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: The header by which `serve` of smdp-entrypoint knows the local cloud: other users reach its address too.
TOKEN_HEADER = "x-smdp-serve-token"  # noqa: S105 (the name of a header)
_CONNECT_TIMEOUT = 2.0  # seconds
_BLOCK = 64 * 1024

Host = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """A container's answer. The names of `headers` are lower-case."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class TooManyRequests(Exception):
    """The hosts have as many requests as they may."""


class NotConnected(Exception):
    """The host accepts no connection."""


class NoAnswer(Exception):
    """The host has the request and gave no valid answer; the message is the platform's."""


class Balancer:
    """Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_progress: Counter[str] = Counter()  # by instance
        self._turns = 0
        self._random = random.Random()  # noqa: S311 (no secret)

    def choose(self, variants: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """A variant that has hosts, by weight; None where there is none."""
        able = [one for one in variants if one["hosts"]]
        weights = [one["weight"] for one in able]
        if not able:
            return None
        if not any(weights):
            return able[0]
        with self._lock:
            return self._random.choices(able, weights)[0]

    @contextmanager
    def host(self, hosts: Sequence[Host], most: float = math.inf) -> Iterator[Host]:
        """The host with the fewest requests; of several, each in its turn.

        Raises TooManyRequests where all of them together have `most` requests in progress.
        """
        with self._lock:
            if sum(self._in_progress[one["instance"]] for one in hosts) >= most:
                raise TooManyRequests
            self._turns += 1
            order = [hosts[(self._turns + place) % len(hosts)] for place in range(len(hosts))]
            found = min(order, key=lambda one: self._in_progress[one["instance"]])
            self._in_progress[found["instance"]] += 1
        try:
            yield found
        finally:
            with self._lock:
                self._in_progress[found["instance"]] -= 1
                self._in_progress += Counter()  # drops the hosts without requests


def post(
    host: Host, body: bytes, headers: Mapping[str, str], limit: float, most: int, *, chunked: bool = False
) -> Answer:
    """Send the request to the host's container.

    Args:
        limit: seconds for the whole answer.
        most: bytes of the answer's body.
        chunked: whether the body is sent in HTTP chunks, without its length.

    Raises NotConnected and NoAnswer.
    """
    deadline = time.monotonic() + limit
    connection = http.client.HTTPConnection(host["address"], host["port"], timeout=min(limit, _CONNECT_TIMEOUT))
    try:
        try:
            connection.connect()
        except OSError as error:
            raise NotConnected(str(error)) from error
        content = _blocks(body) if chunked else body  # http.client sends an iterator in chunks
        return _exchange(connection, content, {**headers, TOKEN_HEADER: host["token"]}, deadline, most)
    except TimeoutError as error:
        raise NoAnswer(
            "Your invocation timed out while waiting for a response from container primary. Review the latency "
            "metrics for each container in Amazon CloudWatch, resolve the issue, and try again."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(f"The container ended the connection without a valid answer: {error}") from error
    finally:
        connection.close()


def _blocks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), _BLOCK):
        yield body[start : start + _BLOCK]


def _exchange(
    connection: http.client.HTTPConnection,
    body: bytes | Iterator[bytes],
    headers: Mapping[str, str],
    deadline: float,
    most: int,
) -> Answer:
    socket = connection.sock
    socket.settimeout(_left(deadline))
    connection.request("POST", "/invocations", body, {**headers, "Connection": "close"})
    socket.settimeout(_left(deadline))
    answer = connection.getresponse()
    received = bytearray()
    while len(received) <= most:
        socket.settimeout(_left(deadline))
        block = answer.read1(_BLOCK)
        if not block:
            break
        received += block
    if len(received) > most:
        raise NoAnswer(f"The response of the container has more than the {most} bytes that a response may have.")
    if answer.length:
        raise http.client.IncompleteRead(bytes(received), answer.length)
    return Answer(answer.status, bytes(received), {name.lower(): value for name, value in answer.getheaders()})


def _left(deadline: float) -> float:
    """Seconds until the deadline. Raises TimeoutError where it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
