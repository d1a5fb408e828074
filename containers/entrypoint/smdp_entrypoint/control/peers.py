"""Word between the hosts of a job, so that a failure on one is known on all within a second, with its first cause.

Every host keeps one connection to the first host of the platform's list. Whoever fails reports it there; the first host
tells all others to end, hears what they saw, and tells everybody which failure began first. A host whose connection
ends without a goodbye, or that is silent for `SILENCE_S`, is lost, and that is reported in its place. If the first host
itself is lost, each host says so for itself.

A thread owns the connections, since preparing a job blocks (downloads, pip). It wakes the main thread with a signal.
"""

from __future__ import annotations

import os
import queue
import secrets
import selectors
import signal
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Protocol

from smdp_entrypoint.contract.errors import HostsError
from smdp_entrypoint.control.reports import Report
from smdp_entrypoint.processes.signals import NEWS

BEAT_S = 2.0
SILENCE_S = 10.0
# How long the reports of others are awaited after the first one.
INQUIRY_S = 0.8
# Sending a goodbye takes no longer than this.
GOODBYE_S = 0.5
# Workers wait this long for the connection to the first host, so that no failure of theirs goes unheard.
CONTACT_S = 10.0
# What `verdict_within` allows for beyond the inquiry: two ways over the network and a busy machine.
VERDICT_S = INQUIRY_S + 0.4
_TICK_S = 0.5


class Role(Protocol):
    """What the first host, or another, does with its connections. Called from the thread only."""

    def open(self, loop: PeerLoop) -> None: ...
    def report(self, report: Report | None, now: float) -> None: ...
    def ready(self, key: Any, now: float) -> None: ...
    def turn(self, now: float) -> None: ...
    def has_told_everybody(self) -> bool: ...
    def goodbye(self) -> None: ...
    def has_left(self) -> bool: ...
    def next_event(self) -> float: ...


@dataclass
class _Leave:
    """Ask the thread to end, at the latest at this monotonic time if somebody still has to be told something."""

    told_by: float


class PeerLoop:
    """The thread. `ending` is the first failure that was reported anywhere, `verdict` the one that began first; both
    are set once, by the thread, and may be read by anybody."""

    def __init__(self, role: Role, say: Callable[[str], None]) -> None:
        self.say = say
        self.selector = selectors.DefaultSelector()
        self.ending: Report | None = None
        self.verdict: Report | None = None
        self.token: str | None = None  # the job's, once the first host is in contact
        self.problem = ""  # why this host has no word of the others
        self._role = role
        self._decided, self._in_contact = threading.Event(), threading.Event()
        self._orders: queue.SimpleQueue[Report | _Leave | None] = queue.SimpleQueue()
        self._wake, self._wake_end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)

    def start(self) -> None:
        os.set_blocking(self._wake, False)
        self.selector.register(self._wake, selectors.EVENT_READ)
        self._thread.start()

    def order(self, order: Report | _Leave | None) -> None:
        self._orders.put(order)
        os.write(self._wake_end, b"\0")

    def leave(self, patience: float) -> None:
        self.order(_Leave(time.monotonic() + patience))
        self._thread.join(patience + 2 * GOODBYE_S)

    def wait_for_verdict(self, seconds: float) -> Report | None:
        self._decided.wait(seconds)
        return self.verdict

    def wait_for_contact(self, seconds: float) -> bool:
        return self._in_contact.wait(seconds)

    def note_contact(self, token: str) -> None:
        self.token = token
        self._in_contact.set()

    def note_ending(self, report: Report) -> None:
        if self.ending is None:
            self.ending = report
            self._tell_main_thread()

    def note_verdict(self, report: Report) -> None:
        if self.verdict is None:
            self.ending = self.ending or report
            self.verdict = report
            self._decided.set()
            self._tell_main_thread()

    @staticmethod
    def _tell_main_thread() -> None:
        main = threading.main_thread()
        if main.ident is not None and main.is_alive():
            signal.pthread_kill(main.ident, NEWS)

    def _run(self) -> None:
        try:
            self._role.open(self)
            self._serve()
        except HostsError:
            return  # the main thread looks for the same host, and says so
        except OSError as error:
            self.problem = str(error)
            self.say(f"the other hosts cannot be told of failures, nor we of theirs: {error}")
        finally:
            self._decided.set()
            self._in_contact.set()

    def _serve(self) -> None:
        leaving: _Leave | None = None
        while leaving is None or not (self._role.has_told_everybody() or time.monotonic() >= leaving.told_by):
            leaving = self._turn() or leaving
        self._role.goodbye()
        end = time.monotonic() + GOODBYE_S
        while not self._role.has_left() and time.monotonic() < end:
            self._turn()

    def _turn(self) -> _Leave | None:
        pause = min(_TICK_S, max(0.0, self._role.next_event() - time.monotonic()))
        leaving = None
        for key, _ in self.selector.select(pause):
            if key.fd == self._wake:
                leaving = self._follow_orders() or leaving
            else:
                self._role.ready(key, time.monotonic())
        self._role.turn(time.monotonic())
        return leaving

    def _follow_orders(self) -> _Leave | None:
        os.read(self._wake, 4096)
        leaving = None
        while not self._orders.empty():
            order = self._orders.get()
            if isinstance(order, _Leave):
                leaving = order
            else:
                self._role.report(order, time.monotonic())
        return leaving


class Peers:
    """What the main thread sees of the others. A job of one host has none, and its own reports are its verdict."""

    def __init__(self) -> None:
        self._loop: PeerLoop | None = None
        self._own: Report | None = None

    def join(self, loop: PeerLoop) -> None:
        self._loop = loop
        loop.start()

    @property
    def ending(self) -> Report | None:
        """The failure because of which this host has to end too: its own, or another's."""
        return self._own or (self._loop.ending if self._loop else None)

    def await_contact(self, say: Callable[[str], None]) -> None:
        """Wait for the first host to answer, but not long: training matters more than the word of failures."""
        if self._loop and not self._loop.wait_for_contact(CONTACT_S):
            say(f"the first host's entrypoint has not answered for {CONTACT_S:g} s: starting the workers all the same")

    def await_token(self, say: Callable[[str], None], first: str, seconds: float) -> str:
        """The job's token, which the first host gives to all others. Raises HostsError: workers without it would be
        refused by those that have it."""
        loop = self._loop
        if loop is None:
            return secrets.token_hex(16)
        if not loop.wait_for_contact(min(CONTACT_S, seconds)):
            say(f"waiting for the job's token from host {first}")
            loop.wait_for_contact(max(0.0, seconds - CONTACT_S))
        if loop.token is None:
            reason = loop.problem or f"it did not let this host in within {seconds:g} s; its own log says why"
            raise HostsError(f"Host {first} gave no token for the job: {reason}.")
        return loop.token

    def report(self, report: Report | None) -> None:
        """What failed first on this host, or None in answer to another's failure if nothing did; once."""
        if self._own is None and report is not None:
            self._own = report
        if self._loop:
            self._loop.order(report)

    def verdict_within(self, seconds: float = VERDICT_S) -> Report | None:
        """The first cause of the job's failure: everybody's verdict, else what is known here when time is up."""
        found = self._loop.wait_for_verdict(seconds) if self._loop and self.ending else None
        return found or self.ending

    def leave(self, patience: float = 0.0) -> None:
        """Say goodbye, so that nobody takes this host for lost; up to `patience` seconds go to hosts that have not
        called yet: they would wait for an answer, or have to be told a failure."""
        if self._loop:
            self._loop.leave(patience)
