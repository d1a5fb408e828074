"""The first host's side of the control channel: all other hosts connect to it, and it sends them the verdict."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from typing import Any, Callable

from smdp_entrypoint.control.addresses import AddressBook
from smdp_entrypoint.control.clocks import CLOCK
from smdp_entrypoint.control.link import MESSAGE, Link, LinkError, ListeningLink
from smdp_entrypoint.control.peers import COLLECT_S, HEARTBEAT_S, HOST_TIMEOUT_S, PeerLoop
from smdp_entrypoint.control.reports import Report, first_report
from smdp_entrypoint.control.workers import WORKERS, Comparison, Workers

# A client has this long to authenticate. More unauthenticated connections than this are refused.
_HANDSHAKE_S = 5.0
_MAX_UNAUTHENTICATED = 256


class FirstHost:
    """`address` returns the address to listen on; if this machine does not have it (address translation), the host
    listens on all addresses. Every admitted host receives the job's `token`. `book` checks the hosts' addresses; it is
    None in a job whose key is a secret."""

    def __init__(
        self,
        own: str,
        others: list[str],
        key: bytes,
        address: Callable[[], str],
        port: int,
        token: str,
        book: AddressBook | None,
    ) -> None:
        self._own, self._others, self._key = own, frozenset(others), key
        self._token, self._book = token, book
        self._refused: set[tuple[str, str]] = set()
        self._address, self._port = address, port
        self._links: list[ListeningLink] = []
        self._reports: list[Report] = []
        self._comparison = Comparison()
        self._answered: set[str] = set()
        self._contacted: set[str] = set()
        self._informed: set[str] = set()
        self._decide_at = float("inf")
        self._next_heartbeat = 0.0
        self._is_leaving = False

    def open(self, loop: PeerLoop) -> None:
        self._loop = loop
        self._socket = _listen(self._address(), self._port)
        loop.selector.register(self._socket, selectors.EVENT_READ)
        loop.note_contact(self._token)

    def report(self, report: Report | None, now: float) -> None:
        self._answer(self._own, report, now)

    def send(self, host: str, fields: dict[str, Any]) -> None:
        self._pass(self._own, host, fields)

    def _pass(self, sender: str, host: str, fields: dict[str, Any]) -> None:
        for link in self._links:
            if link.proved and link.host == host:
                link.send(MESSAGE, fields=fields, **{"from": sender})

    def announce(self, workers: Workers, now: float) -> None:
        self._compare(self._own, workers, now)

    def ready(self, key: Any, now: float) -> None:
        if key.fileobj is self._socket:
            self._accept()
        else:
            self._receive_from(key.data, now)

    def turn(self, now: float) -> None:
        if self._loop.verdict is None and self._reports and (now >= self._decide_at or not self._awaited()):
            verdict = first_report(self._reports)
            self._broadcast("cause", **verdict.fields())
            self._informed.update(link.host for link in self._links if link.proved)
            self._loop.note_verdict(verdict)
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + HEARTBEAT_S
            self._broadcast("alive")
        for link in list(self._links):
            self._maintain(link, now)

    def next_event(self) -> float:
        return min(self._decide_at if self._loop.verdict is None else float("inf"), self._next_heartbeat)

    def all_informed(self) -> bool:
        return self._others <= (self._contacted if self._loop.ending is None else self._informed)

    def goodbye(self) -> None:
        self._is_leaving = True
        with contextlib.suppress(KeyError, ValueError):
            self._loop.selector.unregister(self._socket)
        self._socket.close()
        self._broadcast("bye")
        for link in list(self._links):
            self._flush(link)

    def has_left(self) -> bool:
        return not self._links

    def _awaited(self) -> set[str]:
        present = {self._own, *(link.host for link in self._links if link.proved)}
        return present - self._answered

    def _accept(self) -> None:
        try:
            connection, address = self._socket.accept()
        except OSError:
            return  # the client has closed the connection
        if sum(not link.proved for link in self._links) >= _MAX_UNAUTHENTICATED:
            connection.close()
            return
        link = ListeningLink(connection, self._key, self._others, str(address[0]), self._loop.say)
        self._links.append(link)
        self._loop.selector.register(link, selectors.EVENT_READ, link)

    def _receive_from(self, link: ListeningLink, now: float) -> None:
        was_known = link.proved
        try:
            messages = link.receive()
            if link.proved and not was_known and not self._is_at_its_address(link):
                self._remove(link)
                return
            for message in messages:
                self._handle(link, message, now)
        except (LinkError, ValueError) as error:
            self._drop(link, str(error), now)
            return
        if link.proved and not was_known:
            self._welcome(link)

    def _is_at_its_address(self, link: ListeningLink) -> bool:
        """Checked before the client's messages are read, and before the client learns that it is admitted."""
        address = link.address
        matches = self._book is None or self._book.has(link.host, address)
        if matches is False and (link.host, address) not in self._refused:
            self._refused.add((link.host, address))
            self._loop.say(
                f"refused a connection from {address}: it claims to be {link.host}, which has another address. If the "
                "network translates the hosts' addresses, set SMDP_JOB_TOKEN in the job's environment"
            )
        return bool(matches)

    def _welcome(self, link: ListeningLink) -> None:
        link.send("token", token=self._token)
        self._contacted.add(link.host)
        if self._loop.verdict is not None:
            link.send("cause", **self._loop.verdict.fields())
            self._informed.add(link.host)
        elif self._loop.ending is not None:
            link.send("end", **self._loop.ending.fields())

    def _handle(self, link: ListeningLink, message: dict[str, Any], now: float) -> None:
        kind = message.get("is")
        if kind == "failed":
            self._answer(link.host, Report.parse({**message, "host": link.host}), now)
        elif kind == "none":
            self._answer(link.host, None, now)
        elif kind == "bye":
            self._answered.add(link.host)
            self._informed.add(link.host)
            self._remove(link)
        elif kind == CLOCK:
            link.send(CLOCK, number=message.get("number"), time=time.time())
        elif kind == WORKERS:
            self._compare(link.host, Workers.parse(message), now)
        elif kind == MESSAGE and isinstance(message.get("fields"), dict):
            if message.get("to", self._own) == self._own:
                self._loop.note_message(link.host, message["fields"])
            else:
                self._pass(link.host, str(message["to"]), message["fields"])

    def _answer(self, host: str, report: Report | None, now: float) -> None:
        self._answered.add(host)
        if report is None or self._loop.verdict is not None:
            return
        self._reports.append(report)
        if len(self._reports) == 1:
            self._decide_at = now + COLLECT_S
            self._broadcast("end", **report.fields())
            self._loop.note_ending(report)

    def _compare(self, host: str, workers: Workers, now: float) -> None:
        problem = self._comparison.add(host, workers)
        if problem:
            self._answer(host, Report(host, time.time(), 0, 1, problem), now)

    def _drop(self, link: ListeningLink, reason: str, now: float) -> None:
        self._remove(link)
        if link.proved and not self._is_leaving:
            self._answer(link.host, lost_host(link, reason, now), now)

    def _maintain(self, link: ListeningLink, now: float) -> None:
        if not link.proved and now - link.created_at > _HANDSHAKE_S:
            self._remove(link)
        elif link.proved and now - link.last_received > HOST_TIMEOUT_S:
            self._drop(link, f"it sent nothing for {HOST_TIMEOUT_S:g} s", now)
        else:
            self._flush(link)

    def _flush(self, link: ListeningLink) -> None:
        with contextlib.suppress(LinkError):  # the next read reports a closed connection
            link.flush()

    def _remove(self, link: ListeningLink) -> None:
        if link in self._links:
            self._links.remove(link)
            self._loop.selector.unregister(link)
            link.close()

    def _broadcast(self, kind: str, **fields: Any) -> None:
        for link in self._links:
            if link.proved:
                link.send(kind, **fields)


def lost_host(link: Link, reason: str, now: float) -> Report:
    """The report on behalf of a host that can no longer send one; its failure began when it last sent something."""
    summary = (
        f"host {link.host} was lost: {reason}. Its container was killed or ran out of memory, or its machine stopped"
    )
    return Report(link.host, time.time() - (now - link.last_received), 0, 1, summary)


def _listen(address: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listening.bind((address, port))
        except OSError:
            listening.bind(("", port))
        listening.listen(_MAX_UNAUTHENTICATED)
    except OSError as error:
        listening.close()
        raise OSError(
            f"port {port} cannot be opened ({error.strerror}); set SMDP_CONTROL_PORT to another port"
        ) from error
    listening.setblocking(False)
    return listening
