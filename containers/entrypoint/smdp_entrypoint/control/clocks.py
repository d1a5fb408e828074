"""How far the clock of this host is from that of the first host, measured over the control channel.

    other host                              first host
    {"is": "clock", "number": N}      -->
                                      <--   {"is": "clock", "number": N, "time": T}

The first host reads its clock between the two moments that this host notes. So half of the round trip bounds the error
of the difference. The fastest of several exchanges counts.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, Callable

from smdp_entrypoint.contract.errors import HealthError

#: The kind of both messages.
CLOCK = "clock"
#: Seconds that all exchanges may take.
LONGEST_S = 5.0
# Seconds between two clocks: AWS refuses requests whose time differs by five minutes.
_LIMIT_S = 300.0
_NOTE_S = 5.0
_EXCHANGES = 5
# A slower exchange says too little about clocks that differ by seconds.
_LONGEST_ROUND_TRIP_S = 2.0


@dataclass(frozen=True)
class ClockDifference:
    """`seconds`: how far this host's clock is ahead of the first host's, below 0 if it is behind; `error`: the most
    seconds by which this may be wrong."""

    seconds: float
    error: float

    @property
    def least(self) -> float:
        """Seconds by which the clocks differ at least."""
        return max(0.0, abs(self.seconds) - self.error)


class ClockExchange:
    """This host's side. `send` sends a message with these fields. `best` is None until an exchange was fast enough."""

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._number = 0
        self._asked_at = self._asked_time = 0.0
        self.best: ClockDifference | None = None

    def ask(self) -> None:
        self._number += 1
        self._asked_at, self._asked_time = time.monotonic(), time.time()
        self._send({"number": self._number})

    def take(self, message: dict[str, Any]) -> bool:
        """Take the first host's answer. Return whether it was the last one; else send the next request."""
        theirs = message.get("time")
        if message.get("number") != self._number or not isinstance(theirs, (int, float)) or not math.isfinite(theirs):
            return False
        round_trip = time.monotonic() - self._asked_at
        found = ClockDifference(self._asked_time + round_trip / 2 - theirs, round_trip / 2)
        if round_trip <= _LONGEST_ROUND_TRIP_S and (self.best is None or found.error < self.best.error):
            self.best = found
        if self._number >= _EXCHANGES:
            return True
        self.ask()
        return False


def check_clock(host: str, first: str, difference: ClockDifference | None, say: Callable[[str], None]) -> None:
    """Report a clock that differs from the first host's. Raises HealthError if AWS refuses requests with its time."""
    if difference is None or difference.least < _NOTE_S:
        return
    ahead = "ahead of" if difference.seconds > 0 else "behind"
    text = f"its clock is {abs(difference.seconds):.1f} s {ahead} that of {first} (+-{difference.error:.1f} s)"
    if difference.least >= _LIMIT_S:
        raise HealthError(
            f"unhealthy host {host}: {text}, and AWS refuses requests whose time differs by {_LIMIT_S:g} s. Start "
            "the job again to get another host."
        )
    say(
        f"host {host}: {text}. The times in the logs of both hosts differ by as much. AWS refuses requests whose time "
        f"differs by {_LIMIT_S:g} s"
    )
