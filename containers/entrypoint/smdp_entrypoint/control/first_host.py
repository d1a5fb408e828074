"""The first host's side of the word between hosts: it is called by all others, and tells them the verdict."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from typing import Any, Callable

from smdp_entrypoint.control.addresses import AddressBook
from smdp_entrypoint.control.link import Link, LinkError, ListeningLink
from smdp_entrypoint.control.peers import BEAT_S, INQUIRY_S, SILENCE_S, PeerLoop
from smdp_entrypoint.control.reports import Report, first_report

# A caller has this long to prove itself, and no more than so many may be about to.
_PROOF_S = 5.0
_MOST_STRANGERS = 256


class FirstHost:
    """`address` finds where to listen; an address that is not this machine's own (as behind a translation) makes it
    listen on all. `token` is the job's, for every host that is let in. `book` is asked for the address of each, and
    None for a job whose key is a secret."""

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
        self._answered: set[str] = set()
        self._met: set[str] = set()
        self._told: set[str] = set()
        self._decide_at = float("inf")
        self._next_beat = 0.0
        self._is_leaving = False

    def open(self, loop: PeerLoop) -> None:
        self._loop = loop
        self._socket = _listen(self._address(), self._port)
        loop.selector.register(self._socket, selectors.EVENT_READ)
        loop.note_contact(self._token)

    def report(self, report: Report | None, now: float) -> None:
        self._answer(self._own, report, now)

    def ready(self, key: Any, now: float) -> None:
        if key.fileobj is self._socket:
            self._accept()
        else:
            self._hear(key.data, now)

    def turn(self, now: float) -> None:
        if self._loop.verdict is None and self._reports and (now >= self._decide_at or not self._awaited()):
            verdict = first_report(self._reports)
            self._tell_all("cause", **verdict.fields())
            self._told.update(link.host for link in self._links if link.proved)
            self._loop.note_verdict(verdict)
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            self._tell_all("alive")
        for link in list(self._links):
            self._care_for(link, now)

    def next_event(self) -> float:
        return min(self._decide_at if self._loop.verdict is None else float("inf"), self._next_beat)

    def has_told_everybody(self) -> bool:
        return self._others <= (self._met if self._loop.ending is None else self._told)

    def goodbye(self) -> None:
        self._is_leaving = True
        with contextlib.suppress(KeyError, ValueError):
            self._loop.selector.unregister(self._socket)
        self._socket.close()
        self._tell_all("bye")
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
            return  # it has gone again
        if sum(not link.proved for link in self._links) >= _MOST_STRANGERS:
            connection.close()
            return
        link = ListeningLink(connection, self._key, self._others, str(address[0]))
        self._links.append(link)
        self._loop.selector.register(link, selectors.EVENT_READ, link)

    def _hear(self, link: ListeningLink, now: float) -> None:
        was_known = link.proved
        try:
            messages = link.receive()
            if link.proved and not was_known and not self._is_at_its_address(link):
                self._remove(link)
                return
            for message in messages:
                self._take(link, message, now)
        except (LinkError, ValueError) as error:
            self._drop(link, str(error), now)
            return
        if link.proved and not was_known:
            self._welcome(link)

    def _is_at_its_address(self, link: ListeningLink) -> bool:
        """Looked at before anything that the caller says, and before it hears that it is let in."""
        address = link.address
        found = self._book is None or self._book.has(link.host, address)
        if found is False and (link.host, address) not in self._refused:
            self._refused.add((link.host, address))
            self._loop.say(
                f"refused a caller at {address} that says it is {link.host}, which has another address; where the "
                "addresses of hosts are translated, set SMDP_JOB_TOKEN in the job's environment"
            )
        return bool(found)

    def _welcome(self, link: ListeningLink) -> None:
        link.send("token", token=self._token)
        self._met.add(link.host)
        if self._loop.verdict is not None:
            link.send("cause", **self._loop.verdict.fields())
            self._told.add(link.host)
        elif self._loop.ending is not None:
            link.send("end", **self._loop.ending.fields())

    def _take(self, link: ListeningLink, message: dict[str, Any], now: float) -> None:
        kind = message.get("is")
        if kind == "failed":
            self._answer(link.host, Report.parse({**message, "host": link.host}), now)
        elif kind == "none":
            self._answer(link.host, None, now)
        elif kind == "bye":
            self._answered.add(link.host)
            self._told.add(link.host)
            self._remove(link)

    def _answer(self, host: str, report: Report | None, now: float) -> None:
        self._answered.add(host)
        if report is None or self._loop.verdict is not None:
            return
        self._reports.append(report)
        if len(self._reports) == 1:
            self._decide_at = now + INQUIRY_S
            self._tell_all("end", **report.fields())
            self._loop.note_ending(report)

    def _drop(self, link: ListeningLink, reason: str, now: float) -> None:
        self._remove(link)
        if link.proved and not self._is_leaving:
            self._answer(link.host, lost_host(link, reason, now), now)

    def _care_for(self, link: ListeningLink, now: float) -> None:
        if not link.proved and now - link.born > _PROOF_S:
            self._remove(link)
        elif link.proved and now - link.heard > SILENCE_S:
            self._drop(link, f"nothing was heard of it for {SILENCE_S:g} s", now)
        else:
            self._flush(link)

    def _flush(self, link: ListeningLink) -> None:
        with contextlib.suppress(LinkError):  # an end of the connection is seen when it is read from
            link.flush()

    def _remove(self, link: ListeningLink) -> None:
        if link in self._links:
            self._links.remove(link)
            self._loop.selector.unregister(link)
            link.close()

    def _tell_all(self, kind: str, **fields: Any) -> None:
        for link in self._links:
            if link.proved:
                link.send(kind, **fields)


def lost_host(link: Link, reason: str, now: float) -> Report:
    """In place of the report that this host cannot send any more; it failed when it was last heard of."""
    summary = (
        f"host {link.host} was lost: {reason}. Its container was killed, ran out of memory, or its machine is gone"
    )
    return Report(link.host, time.time() - (now - link.heard), 0, 1, summary)


def _listen(address: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        try:
            listening.bind((address, port))
        except OSError:
            listening.bind(("", port))
        listening.listen(_MOST_STRANGERS)
    except OSError as error:
        listening.close()
        raise OSError(f"port {port} cannot be opened ({error.strerror}); SMDP_CONTROL_PORT names another") from error
    listening.setblocking(False)
    return listening
