"""The control channel of every host but the first: it connects to the first host, reports to it, gets its verdict."""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
from dataclasses import asdict
from typing import Any, Callable

from smdp_entrypoint.control.clocks import CLOCK, ClockExchange
from smdp_entrypoint.control.first_host import lost_host
from smdp_entrypoint.control.link import MESSAGE, CallingLink, LinkError
from smdp_entrypoint.control.peers import COLLECT_S, HEARTBEAT_S, HOST_TIMEOUT_S, PeerLoop
from smdp_entrypoint.control.reports import Report, first_report
from smdp_entrypoint.control.workers import WORKERS, Workers

# The first host may start later, so a failed connection is retried with growing pauses.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 0.5
_CONNECT_S = 5.0
_LOG_INTERVAL_S = 60.0
_CONNECT_DEADLINE_S = 15 * 60.0


class OtherHost:
    """`own_addresses` returns the addresses to connect from, so that the first host sees the address of this host's
    name."""

    def __init__(
        self,
        own: str,
        first: str,
        key: bytes,
        address: Callable[[], str],
        port: int,
        own_addresses: Callable[[], set[str]],
    ) -> None:
        self._own, self._first, self._key = own, first, key
        self._address, self._port = address, port
        self._own_addresses = own_addresses
        self._source: str | None = None
        self._link: CallingLink | None = None
        self._clocks: ClockExchange | None = None
        self._connecting: socket.socket | None = None
        self._started: float | None = None
        self._next_call = self._call_ends = 0.0
        self._pause = _FIRST_PAUSE_S
        self._next_log = _LOG_INTERVAL_S
        self._next_heartbeat = 0.0
        self._unsent: Report | None = None
        self._workers: Workers | None = None
        self._reports: list[Report] = []
        self._decide_at = float("inf")
        self._is_over = False  # the first host has exited, or this host no longer tries to connect

    def open(self, loop: PeerLoop) -> None:
        self._loop = loop
        self._target = self._address()
        with contextlib.suppress(OSError, UnicodeError):  # the system then selects the source address
            own = self._own_addresses()
            self._source = next((address for address in own if (":" in address) == (":" in self._target)), None)

    def report(self, report: Report | None, now: float) -> None:
        if self._link is not None and self._link.proved:
            self._send(report)
        elif self._is_over:
            self._decide_alone(report, now)
        else:
            self._unsent = report

    def send(self, host: str, fields: dict[str, Any]) -> None:
        if self._link is not None and self._link.proved:
            self._link.send(MESSAGE, to=host, fields=fields)

    def announce(self, workers: Workers, now: float) -> None:
        self._workers = workers
        if self._link is not None and self._link.proved:
            self._link.send(WORKERS, **asdict(workers))

    def ready(self, key: Any, now: float) -> None:
        if self._connecting is not None:
            self._finish_call(now)
        elif self._link is not None:
            self._receive_from(self._link, now)

    def turn(self, now: float) -> None:
        if now >= self._decide_at and self._loop.verdict is None:
            self._loop.note_verdict(first_report(self._reports))
        if self._link is not None:
            self._maintain(self._link, now)
        elif not self._is_over:
            self._maintain_call(now)

    def next_event(self) -> float:
        waiting = self._decide_at if self._loop.verdict is None else float("inf")
        if self._is_over:
            return waiting
        return min(waiting, self._next_heartbeat if self._link is not None else self._next_call)

    def all_informed(self) -> bool:
        return self._is_over or self._unsent is None

    def goodbye(self) -> None:
        self._hang_up_call()
        self._is_over = True
        if self._link is not None:
            self._link.send("bye")
            with contextlib.suppress(LinkError):
                self._link.flush()

    def has_left(self) -> bool:
        return self._link is None or not self._link.proved

    def _maintain_call(self, now: float) -> None:
        self._started = self._started or now
        waited = now - self._started
        if self._connecting is not None and now >= self._call_ends:
            self._fail_call(now)
        elif self._connecting is None and waited >= _CONNECT_DEADLINE_S:
            self._is_over = True
            self._log_unreachable(waited, "continuing without the failure reports of other hosts")
        elif self._connecting is None and now >= self._next_call:
            self._call(now)
        if not self._is_over and waited >= self._next_log:
            self._next_log += _LOG_INTERVAL_S
            self._log_unreachable(waited, "still retrying")

    def _log_unreachable(self, waited: float, then: str) -> None:
        self._loop.say(
            f"host {self._first} has not answered at {self._target} port {self._port} for {waited:.0f} s: {then}"
        )

    def _call(self, now: float) -> None:
        family = socket.AF_INET6 if ":" in self._target else socket.AF_INET
        self._connecting = socket.socket(family, socket.SOCK_STREAM)
        self._connecting.setblocking(False)
        if self._source is not None:
            with contextlib.suppress(OSError):  # not an address of this machine: the network translates addresses
                self._connecting.bind((self._source, 0))
        self._call_ends = now + _CONNECT_S
        if self._connecting.connect_ex((self._target, self._port)) not in (0, errno.EINPROGRESS):
            self._fail_call(now)
            return
        self._loop.selector.register(self._connecting, selectors.EVENT_WRITE)
        self._next_call = self._call_ends

    def _fail_call(self, now: float) -> None:
        self._hang_up_call()
        self._next_call = now + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)

    def _hang_up_call(self) -> None:
        if self._connecting is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._loop.selector.unregister(self._connecting)
            self._connecting.close()
            self._connecting = None

    def _finish_call(self, now: float) -> None:
        connection = self._connecting
        if connection is None or connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._fail_call(now)
            return
        self._loop.selector.unregister(connection)
        self._connecting = None
        self._link = CallingLink(connection, self._key, self._own, self._first, self._loop.say)
        self._loop.selector.register(self._link, selectors.EVENT_READ)

    def _receive_from(self, link: CallingLink, now: float) -> None:
        was_known = link.proved
        try:
            for message in link.receive():
                self._handle(link, message)
        except (LinkError, ValueError) as error:
            self._drop(link, str(error), now)
            return
        if not link.proved or was_known:
            return
        if self._workers is not None:
            self.announce(self._workers, now)
        if self._unsent is not None:
            self._send(self._unsent)
            self._unsent = None

    def _handle(self, link: CallingLink, message: dict[str, Any]) -> None:
        kind = message.get("is")
        if kind == "token":
            self._loop.note_contact(str(message.get("token")))
            self._clocks = ClockExchange(lambda fields: link.send(CLOCK, **fields))
            self._clocks.ask()
        elif kind == CLOCK and self._clocks is not None:
            if self._clocks.take(message):
                self._loop.note_clock(self._clocks.best)
        elif kind == "end":
            self._loop.note_ending(Report.parse(message))
        elif kind == "cause":
            self._loop.note_verdict(Report.parse(message))
        elif kind == "bye":
            self._is_over = True
            self._remove_link()
        elif kind == MESSAGE and isinstance(message.get("fields"), dict):
            self._loop.note_message(str(message.get("from", self._first)), message["fields"])

    def _send(self, report: Report | None) -> None:
        if self._link is not None:
            self._link.send("none") if report is None else self._link.send("failed", **report.fields())

    def _decide_alone(self, report: Report | None, now: float) -> None:
        """Without the first host every host determines the verdict itself."""
        if report is not None:
            self._reports.append(report)
            self._loop.note_ending(report)
        self._decide_at = now

    def _maintain(self, link: CallingLink, now: float) -> None:
        if now - link.last_received > (HOST_TIMEOUT_S if link.proved else _CONNECT_S):
            self._drop(link, f"it sent nothing for {HOST_TIMEOUT_S:g} s", now)
            return
        if link.proved and now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_S
            link.send("alive")
        with contextlib.suppress(LinkError):  # the next read reports a closed connection
            link.flush()

    def _drop(self, link: CallingLink, reason: str, now: float) -> None:
        self._remove_link()
        if not link.proved:
            self._fail_call(now)
        elif not self._is_over:
            self._is_over = True
            report = lost_host(link, reason, now)
            self._reports.append(report)
            self._decide_at = now + COLLECT_S
            self._loop.note_ending(report)

    def _remove_link(self) -> None:
        if self._link is not None:
            self._loop.selector.unregister(self._link)
            self._link.close()
            self._link = None
