"""Lines of many hosts in the order of their times, though they come stream by stream and some come late.

Within a stream the order is the stream's own, whatever its clock does: a line counts as no earlier than the one before
it. Across streams a line is held back until lines are known that are ``window`` later, or until it has been here for
that long and nothing came; and never overtakes a stream of which more is known to come. What comes later still is let
through at once and marked.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

WINDOW = 2000  # milliseconds


class Timed(Protocol):
    """A line, or what else happened in a stream."""

    @property
    def time_ms(self) -> int: ...


_Item = TypeVar("_Item", bound=Timed)


class Merge(Generic[_Item]):
    """Args:
    window: milliseconds; 0 where there is but one stream.
    clock: seconds that never go back.
    """

    def __init__(self, window: int = WINDOW, clock: Callable[[], float] = time.monotonic) -> None:
        self.window = window
        self._clock = clock
        self._held: list[tuple[int, int, bool, _Item]] = []
        self._count = 0
        self._last: dict[str, int] = {}  # time of each stream's last line
        self._newest = 0
        self._arrivals: deque[tuple[float, int]] = deque()  # when, and the latest time that came then
        self._latest_overdue = 0
        self._released = 0

    def add(self, stream: str, items: Iterable[_Item]) -> None:
        count, last = self._count, self._last.get(stream, 0)
        for item in items:
            last = max(last, item.time_ms)
            self._hold(last, _marked(item) if last < self._released else item)
        if self._count > count:
            self._last[stream] = last
            self._newest = max(self._newest, last)
            self._arrivals.append((self._clock(), last))

    def note(self, item: _Item) -> None:
        """Something beside the lines, such as a change of status: in its place among them, but never waited for."""
        self._hold(item.time_ms, item, noted=True)

    def take(self, behind: Collection[str] = ()) -> Iterator[_Item]:
        """What need not be held any longer, in order.

        Args:
            behind: streams of which more is known to come.
        """
        bound = max(self._newest - self.window, self._overdue())
        bound = min([bound, *(self._last.get(one, 0) for one in behind)])
        while self._held and (self._held[0][0] <= bound or (self._held[0][2] and not behind)):
            at, _, noted, item = heapq.heappop(self._held)
            if not noted:
                self._released = max(self._released, at)
            yield item

    def rest(self) -> Iterator[_Item]:
        """All that is held, when nothing more will come."""
        while self._held:
            yield heapq.heappop(self._held)[-1]

    def _hold(self, at: int, item: _Item, noted: bool = False) -> None:
        self._count += 1
        heapq.heappush(self._held, (at, self._count, noted, item))

    def _overdue(self) -> int:
        """The latest time among what has been here for the whole window."""
        now = self._clock()
        while self._arrivals and self._arrivals[0][0] + self.window / 1000 <= now:
            self._latest_overdue = max(self._latest_overdue, self._arrivals.popleft()[1])
        return self._latest_overdue


def _marked(item: _Item) -> _Item:
    return replace(item, late=True)  # type: ignore[type-var]
