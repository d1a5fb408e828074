"""A host's own part in a probe: it reports that it is ready, measures its links in each round, and reports the values.

A thread of its own, since the supervising loop must act on a stop signal at once.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping, Protocol, Sequence

from smdp_entrypoint.network.caller import Caller
from smdp_entrypoint.network.connection import probe_key
from smdp_entrypoint.network.listener import Listener
from smdp_entrypoint.network.messages import Measured, Ready, Round
from smdp_entrypoint.network.rails import Rail

_TICK_S = 0.25


class Channel(Protocol):
    """The messages between this host and the first host."""

    def send(self, fields: Mapping[str, Any]) -> None: ...
    def receive(self, seconds: float) -> dict[str, Any] | None: ...


class HostProbe:
    """Runs until the first host ends the probe, until `longest` seconds have passed, or until `is_over` is true."""

    def __init__(
        self,
        own: str,
        hosts: Sequence[str],
        rails: Sequence[Rail],
        adapters: int,
        channel: Channel,
        is_over: Callable[[], bool],
    ) -> None:
        self._own, self._hosts = own, [host for host in hosts if host != own]
        self._rails, self._adapters = rails, adapters
        self._channel, self._is_over = channel, is_over

    def run(self, token: str, longest: float) -> bool:
        """Whether the first host has ended the probe."""
        key = probe_key(token)
        listener, caller = Listener(self._rails, self._hosts, key), Caller(self._own, self._rails, key)
        try:
            listener.open()
            main = self._rails[0].name if self._rails else ""
            self._channel.send(Ready(listener.places, main, self._adapters).fields())
            return self._serve(caller, time.monotonic() + longest)
        finally:
            caller.close()
            listener.close()
            caller.release()

    def _serve(self, caller: Caller, deadline: float) -> bool:
        while not self._is_over() and time.monotonic() < deadline:
            message = self._channel.receive(_TICK_S)
            if message is None:
                continue
            if message.get("step") == "end":
                return True
            if message.get("step") == "round":
                round_ = Round.parse(message)
                values = caller.start(round_).values()
                self._channel.send(Measured(round_.number, tuple(values)).fields())
        return False
