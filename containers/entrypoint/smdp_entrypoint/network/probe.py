"""The probe of a job's network on this host: its threads from the start of the workers to their end.

Nothing waits for it. If the job requires a network and does not have it, the first host reports the failure of the job
through the control channel, which ends all hosts.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping

from smdp_entrypoint.contract.rank_layout import Layout
from smdp_entrypoint.contract.settings import NetworkSettings
from smdp_entrypoint.control.hosts import addresses
from smdp_entrypoint.control.peers import Peers
from smdp_entrypoint.network.coordinator import Coordinator, Terms
from smdp_entrypoint.network.figures import figure
from smdp_entrypoint.network.host import HostProbe
from smdp_entrypoint.network.rails import find_adapters, find_rails, is_loopback
from smdp_entrypoint.network.report import Result
from smdp_entrypoint.processes.console import Console

# After its end the threads of a probe have this long to close their connections.
_CLOSE_S = 3.0
# The first host's threads, and the way of its messages, may take so much longer than the plan.
_SLACK_S = 10.0


@dataclass(frozen=True)
class Place:
    """This host in the job."""

    layout: Layout
    instance_type: str
    settings: NetworkSettings

    @property
    def is_first(self) -> bool:
        return self.layout.current_host == self.layout.hosts[0]


class _FromFirst:
    """A host's channel to the first host."""

    def __init__(self, peers: Peers, first: str) -> None:
        self._peers, self._first = peers, first

    def send(self, fields: Mapping[str, Any]) -> None:
        self._peers.send(self._first, dict(fields))

    def receive(self, seconds: float) -> dict[str, Any] | None:
        message = self._peers.receive(seconds)
        return message[1] if message is not None else None


class _OnFirst:
    """The first host's channels: to itself without a connection, to the others through the control channel."""

    def __init__(self, peers: Peers, own: str) -> None:
        self._peers, self._own = peers, own
        self._to_own: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._from_own: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def send(self, host: str, fields: Mapping[str, Any]) -> None:
        if host == self._own:
            self._to_own.put(dict(fields))
        else:
            self._peers.send(host, dict(fields))

    def receive(self, seconds: float) -> tuple[str, dict[str, Any]] | None:
        end = time.monotonic() + seconds
        while True:
            if not self._from_own.empty():
                return self._own, self._from_own.get()
            remaining = end - time.monotonic()
            if remaining <= 0:
                return None
            message = self._peers.receive(min(0.02, remaining))
            if message is not None:
                return message

    def own_side(self) -> _OwnSide:
        return _OwnSide(self._from_own, self._to_own)


@dataclass(frozen=True)
class _OwnSide:
    outgoing: queue.SimpleQueue[dict[str, Any]]
    incoming: queue.SimpleQueue[dict[str, Any]]

    def send(self, fields: Mapping[str, Any]) -> None:
        self.outgoing.put(dict(fields))

    def receive(self, seconds: float) -> dict[str, Any] | None:
        try:
            return self.incoming.get(timeout=seconds)
        except queue.Empty:
            return None


class NetworkProbe:
    """`start` and `finish` never raise, and a failure of the probe itself is one line in the log.

    `failed` is called on the first host with the reason if the job requires a network that it does not have.
    """

    def __init__(
        self, place: Place, console: Console, peers: Peers, failed: Callable[[str], None] = lambda reason: None
    ) -> None:
        self.finished = threading.Event()
        self.result: Result | None = None
        self.has_ended = False  # this host has taken part until the end
        self._place, self._console, self._peers, self._failed = place, console, peers, failed
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        settings = self._place.settings
        if len(self._place.layout.hosts) == 1 or not settings.limit:
            self.finished.set()
            return
        self._start_thread(self._run, "network probe")

    def finish(self) -> None:
        """End the probe and its connections, within seconds."""
        self._over.set()
        end = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _start_thread(self, function: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=self._guarded, args=[function], name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the container's limit of threads
            self._give_up(error)
        else:
            self._threads.append(thread)

    def _guarded(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._console.say(f"network: the probe failed on this host: {type(error).__name__}: {error}")
        self.finished.set()

    def _is_over(self) -> bool:
        return self._over.is_set() or self._peers.ending is not None

    def _run(self) -> None:
        layout, settings = self._place.layout, self._place.settings
        own = layout.current_host
        known = sorted(addresses(settings.hosts_file, own), key=lambda address: ":" in address)
        main = next((address for address in known if not is_loopback(address)), "")
        if not main:  # all hosts are simulated on the loopback interface of one machine
            self.finished.set()
            return
        token = self._peers.token_within(settings.wait)
        if token is None or self._is_over():
            self.finished.set()
            return
        rails = find_rails(main, settings.interface)
        longest = settings.wait + settings.limit + _SLACK_S
        if self._place.is_first:
            hosts = _OnFirst(self._peers, own)
            channel: Any = hosts.own_side()
            self._start_thread(lambda: self._coordinate(hosts), "network coordinator")
        else:
            channel = _FromFirst(self._peers, layout.hosts[0])
        probe = HostProbe(own, layout.hosts, rails, len(find_adapters()), channel, self._is_over)
        self.has_ended = probe.run(token, longest)
        if not self._place.is_first:
            self.finished.set()

    def _coordinate(self, hosts: _OnFirst) -> None:
        settings = self._place.settings
        known = figure(self._place.instance_type, settings.gbit)
        adapters = known.cards if known is not None else 0
        terms = Terms(settings.limit, settings.wait, known, settings.require, adapters)
        result = Coordinator(self._place.layout.hosts, hosts, terms, self._console.say, self._is_over).run()
        if result is not None:
            self.result = result
            for line in result.lines():
                self._console.say(line)
            self._console.event("network", **result.fields())
            if result.met is False:
                self._failed(result.failure())
        self.finished.set()
