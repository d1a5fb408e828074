"""The control channel: every host of a job learns of a failure on any host within a second, with its first cause.

Every host has one connection to the first host of the platform's list and reports its failure there. The first host
requests the other hosts to exit, collects their reports for `COLLECT_S`, and sends all of them the verdict: the failure
that began first. A host whose connection closes without a final message, or that sends nothing for `HOST_TIMEOUT_S`, is
lost, and the first host reports the loss on its behalf. If the first host is lost, each host reports the loss itself.

A separate thread owns the connections, since preparing a job blocks (downloads, pip). It interrupts the main thread
with a signal.
"""

from __future__ import annotations

import contextlib
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
from smdp_entrypoint.control.clocks import ClockDifference
from smdp_entrypoint.control.reports import Report
from smdp_entrypoint.control.workers import Workers
from smdp_entrypoint.processes.signals import PEER_FAILURE_SIGNAL

HEARTBEAT_S = 2.0
HOST_TIMEOUT_S = 10.0
# How long the first host waits for other reports after the first one.
COLLECT_S = 0.8
# Sending a goodbye takes no longer than this.
GOODBYE_S = 0.5
# The workers start this long after the first attempt at the latest, so that their failures can usually be reported.
CONTACT_S = 10.0
# The inquiry, two network round trips and the delay of a busy machine.
VERDICT_S = COLLECT_S + 0.4
_TICK_S = 0.5
# Messages between hosts that wait to be read; more are dropped.
_MOST_MESSAGES = 8192


class Role(Protocol):
    """How the first host, or another host, uses its connections. Only the thread calls these methods."""

    def open(self, loop: PeerLoop) -> None: ...
    def report(self, report: Report | None, now: float) -> None: ...
    def send(self, host: str, fields: dict[str, Any]) -> None: ...
    def announce(self, workers: Workers, now: float) -> None: ...
    def ready(self, key: Any, now: float) -> None: ...
    def turn(self, now: float) -> None: ...
    def all_informed(self) -> bool: ...
    def goodbye(self) -> None: ...
    def has_left(self) -> bool: ...
    def next_event(self) -> float: ...


@dataclass
class _Leave:
    """Requests the thread to exit: once all hosts are informed, at this monotonic time at the latest."""

    deadline: float


@dataclass
class _Message:
    """A message to a host. The first host passes on what other hosts send to each other."""

    host: str
    fields: dict[str, Any]


class PeerLoop:
    """The thread. `ending` is the first failure reported on any host, `verdict` the failure that began first. The
    thread sets each once; any thread may read them."""

    def __init__(self, role: Role, say: Callable[[str], None]) -> None:
        self.say = say
        self.selector = selectors.DefaultSelector()
        self.ending: Report | None = None
        self.verdict: Report | None = None
        self.token: str | None = None  # the job's, once the first host is in contact
        self.clock: ClockDifference | None = None  # from the first host's, once measured
        self.error = ""  # why this host has no connection to the others
        self._role = role
        self._decided, self._in_contact, self._compared = threading.Event(), threading.Event(), threading.Event()
        self._commands: queue.SimpleQueue[Report | Workers | _Leave | _Message | None] = queue.SimpleQueue()
        self._messages: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue(_MOST_MESSAGES)
        self._hang_messages: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue(_MOST_MESSAGES)
        self._wake, self._wake_end = os.pipe()
        self._thread = threading.Thread(target=self._run, name="peers", daemon=True)

    def start(self) -> None:
        os.set_blocking(self._wake, False)
        self.selector.register(self._wake, selectors.EVENT_READ)
        self._thread.start()

    def post(self, command: Report | Workers | _Leave | _Message | None) -> None:
        self._commands.put(command)
        os.write(self._wake_end, b"\0")

    def leave(self, timeout: float) -> None:
        self.post(_Leave(time.monotonic() + timeout))
        self._thread.join(timeout + 2 * GOODBYE_S)

    def wait_for_verdict(self, seconds: float) -> Report | None:
        self._decided.wait(seconds)
        return self.verdict

    def wait_for_contact(self, seconds: float) -> bool:
        return self._in_contact.wait(seconds)

    def wait_for_clock(self, seconds: float) -> ClockDifference | None:
        self._compared.wait(seconds)
        return self.clock

    def note_message(self, host: str, fields: dict[str, Any]) -> None:
        to = self._hang_messages if fields.get("for") == "hang" else self._messages
        with contextlib.suppress(queue.Full):
            to.put_nowait((host, fields))

    def next_message(self, seconds: float) -> tuple[str, dict[str, Any]] | None:
        try:
            return self._messages.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return None

    def hang_messages(self) -> list[tuple[str, dict[str, Any]]]:
        messages = []
        with contextlib.suppress(queue.Empty):
            while True:
                messages.append(self._hang_messages.get_nowait())
        return messages

    def note_contact(self, token: str) -> None:
        self.token = token
        self._in_contact.set()

    def note_clock(self, difference: ClockDifference | None) -> None:
        self.clock = difference
        self._compared.set()

    def note_ending(self, report: Report) -> None:
        if self.ending is None:
            self.ending = report
            self._interrupt_main_thread()

    def note_verdict(self, report: Report) -> None:
        if self.verdict is None:
            self.ending = self.ending or report
            self.verdict = report
            self._decided.set()
            self._interrupt_main_thread()

    @staticmethod
    def _interrupt_main_thread() -> None:
        main = threading.main_thread()
        if main.ident is not None and main.is_alive():
            signal.pthread_kill(main.ident, PEER_FAILURE_SIGNAL)

    def _run(self) -> None:
        try:
            self._role.open(self)
            self._serve()
        except HostsError:
            return  # the main thread resolves the same name and reports the error
        except OSError as error:
            self.error = str(error)
            self.say(f"no control channel: hosts cannot report failures to each other: {error}")
        finally:
            self._decided.set()
            self._in_contact.set()
            self._compared.set()

    def _serve(self) -> None:
        leaving: _Leave | None = None
        while leaving is None or not (self._role.all_informed() or time.monotonic() >= leaving.deadline):
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
                leaving = self._run_commands() or leaving
            else:
                self._role.ready(key, time.monotonic())
        self._role.turn(time.monotonic())
        return leaving

    def _run_commands(self) -> _Leave | None:
        os.read(self._wake, 4096)
        leaving = None
        while not self._commands.empty():
            command = self._commands.get()
            if isinstance(command, _Leave):
                leaving = command
            elif isinstance(command, _Message):
                self._role.send(command.host, command.fields)
            elif isinstance(command, Workers):
                self._role.announce(command, time.monotonic())
            else:
                self._role.report(command, time.monotonic())
        return leaving


class Peers:
    """The main thread's view of the other hosts. In a job of one host the host's own report is the verdict."""

    def __init__(self) -> None:
        self._loop: PeerLoop | None = None
        self._own: Report | None = None

    def join(self, loop: PeerLoop) -> None:
        self._loop = loop
        loop.start()

    @property
    def ending(self) -> Report | None:
        """The failure because of which this host must exit: its own or another host's."""
        return self._own or (self._loop.ending if self._loop else None)

    def await_contact(self, say: Callable[[str], None]) -> None:
        """Wait for the first host to answer, for at most `CONTACT_S`: training can start without failure reports."""
        if self._loop and not self._loop.wait_for_contact(CONTACT_S):
            say(f"the first host's entrypoint has not answered for {CONTACT_S:g} s: starting the workers without it")

    def await_token(self, say: Callable[[str], None], first: str, seconds: float) -> str:
        """The job's token, which the first host sends to all others. Raises HostsError if it does not arrive within
        `seconds`: workers with the token refuse workers without it."""
        loop = self._loop
        if loop is None:
            return secrets.token_hex(16)
        if not loop.wait_for_contact(min(CONTACT_S, seconds)):
            say(f"waiting for the job's token from host {first}")
            loop.wait_for_contact(max(0.0, seconds - CONTACT_S))
        if loop.token is None:
            reason = loop.error or f"it did not admit this host within {seconds:g} s; its log gives the reason"
            raise HostsError(f"Host {first} did not send the job's token: {reason}.")
        return loop.token

    def token_within(self, seconds: float) -> str | None:
        """The job's token; None in a job of one host, and without the first host."""
        if self._loop is None or not self._loop.wait_for_contact(seconds):
            return None
        return self._loop.token

    def clock_within(self, seconds: float) -> ClockDifference | None:
        """How far this host's clock is from the first host's; None if that is not known, as without the first host."""
        if self._loop is None or self._loop.token is None:
            return None
        return self._loop.wait_for_clock(seconds)

    def send(self, host: str, fields: dict[str, Any]) -> None:
        """Send a message to another host. A host that is not connected never gets it."""
        if self._loop:
            self._loop.post(_Message(host, fields))

    def announce(self, workers: Workers) -> None:
        """Have this host's number of workers compared with that of the other hosts. A difference ends the job."""
        if self._loop:
            self._loop.post(workers)

    def receive(self, seconds: float) -> tuple[str, dict[str, Any]] | None:
        """The next message of another host and that host's name; None after `seconds`."""
        return self._loop.next_message(seconds) if self._loop else None

    def hang_messages(self) -> list[tuple[str, dict[str, Any]]]:
        """The messages about hangs that have arrived since the last call, each with its sender. Does not block."""
        return self._loop.hang_messages() if self._loop else []

    def report(self, report: Report | None) -> None:
        """Report the first failure of this host, or None in reply to another host's failure. Call it once."""
        if self._own is None and report is not None:
            self._own = report
        if self._loop:
            self._loop.post(report)

    def verdict_within(self, seconds: float = VERDICT_S) -> Report | None:
        """The first cause of the job's failure: the common verdict, or after `seconds` the failure known to this
        host."""
        verdict = self._loop.wait_for_verdict(seconds) if self._loop and self.ending else None
        return verdict or self.ending

    def leave(self, timeout: float = 0.0) -> None:
        """Close the connections with a final message, so that no host takes this one for lost. Wait up to `timeout`
        seconds for hosts that have not connected yet: they expect an answer or must learn of a failure."""
        if self._loop:
            self._loop.leave(timeout)
