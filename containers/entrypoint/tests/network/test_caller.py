"""The rate of a link whose sending threads do not run all the time, by simulated counters."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

from smdp_entrypoint.network import caller as caller_module
from smdp_entrypoint.network.caller import _LinkCall
from smdp_entrypoint.network.flow import Sample
from smdp_entrypoint.network.messages import Call, Round

RATE = 100  # of the link, in bytes a second


class Connection:
    """It sends nothing in its first window if `waits`; later it has the link to itself."""

    def __init__(self, waits: bool, share: float) -> None:
        arrived = [0.0, 0.0, 0.0, RATE] if waits else [0.0, RATE * share]
        sending = [0.0, 0.0, 0.0, 1.0] if waits else [0.0, 1.0]
        self.samples = [
            Sample(float(at), int(count), seconds) for at, (count, seconds) in enumerate(zip(arrived, sending))
        ]


class OneLink:
    """Stands for the caller. The first connection does not send in its window."""

    own = "algo-1"

    def __init__(self, streams: int) -> None:
        self._numbers: Iterator[int] = itertools.count()
        self._others = streams - 1

    def connect(self, *_: Any) -> Connection:
        first = next(self._numbers) == 0
        return Connection(first, 1.0 / max(1, self._others))

    def send(self, *_: Any) -> None:
        pass

    def close_connection(self, _: Connection) -> None:
        pass


@pytest.mark.parametrize("streams", [1, 4])
def test_rate_is_that_of_the_link_although_a_thread_does_not_run_in_the_window(
    monkeypatch: pytest.MonkeyPatch, streams: int
) -> None:
    of_connection = SimpleNamespace(of=lambda connection: connection.samples.pop(0))
    monkeypatch.setattr(caller_module, "Sample", of_connection)
    round_ = Round(1, (), streams, 1000, limit=60.0, skip=0.0, window=1.0)
    link: Any = OneLink(streams)
    call = _LinkCall(link, Call("algo-2", "eth0", "127.0.0.1", 1), round_, time.monotonic() + 60.0)
    call.start()
    assert call.value().value == pytest.approx(RATE, rel=0.05)
