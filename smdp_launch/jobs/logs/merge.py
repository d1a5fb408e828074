"""Merges the log lines of many hosts by time, although they arrive stream by stream and some arrive late.

Within a stream, the order stays as it is: a line counts as no earlier than the line before it, whatever its clock says.
Across streams, a line is delayed until a line is known that is ``window`` later, or until the line has waited for that
long. A line never overtakes a stream that is still being read. A line that arrives later than that is released at once
and marked as late.
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
    """A line, an event or a status change."""

    @property
    def time_ms(self) -> int: ...


_Item = TypeVar("_Item", bound=Timed)


class Merge(Generic[_Item]):
    """Args:
    window: milliseconds; 0 if there is only one stream.
    clock: a monotonic clock, in seconds.
    """

    def __init__(self, window: int = WINDOW, clock: Callable[[], float] = time.monotonic) -> None:
        self.window = window
        self._clock = clock
        self._delayed: list[tuple[int, int, bool, _Item]] = []  # a heap
        self._count = 0
        self._last: dict[str, int] = {}  # time of each stream's last line
        self._newest = 0
        self._arrivals: deque[tuple[float, int]] = deque()  # when, and the latest time of the lines that arrived then
        self._latest_overdue = 0
        self._released = 0

    def add(self, stream: str, items: Iterable[_Item]) -> None:
        count, last = self._count, self._last.get(stream, 0)
        for item in items:
            last = max(last, item.time_ms)
            self._push(last, _marked(item) if last < self._released else item)
        if self._count > count:
            self._last[stream] = last
            self._newest = max(self._newest, last)
            self._arrivals.append((self._clock(), last))

    def note(self, item: _Item) -> None:
        """Add an item that is no line, such as a status change. It is sorted by time too, but not delayed."""
        self._push(item.time_ms, item, noted=True)

    def take(self, behind: Collection[str] = ()) -> Iterator[_Item]:
        """Yield the items that need no more delay, in order.

        Args:
            behind: streams that have not been read to their end.
        """
        bound = max(self._newest - self.window, self._overdue())
        bound = min([bound, *(self._last.get(one, 0) for one in behind)])
        while self._delayed and (self._delayed[0][0] <= bound or (self._delayed[0][2] and not behind)):
            at, _, noted, item = heapq.heappop(self._delayed)
            if not noted:
                self._released = max(self._released, at)
            yield item

    def rest(self) -> Iterator[_Item]:
        """Yield all remaining items, after the last line was added."""
        while self._delayed:
            yield heapq.heappop(self._delayed)[-1]

    def _push(self, at: int, item: _Item, noted: bool = False) -> None:
        self._count += 1
        heapq.heappush(self._delayed, (at, self._count, noted, item))

    def _overdue(self) -> int:
        """The latest time of the lines that have waited for the whole window."""
        now = self._clock()
        while self._arrivals and self._arrivals[0][0] + self.window / 1000 <= now:
            self._latest_overdue = max(self._latest_overdue, self._arrivals.popleft()[1])
        return self._latest_overdue


def _marked(item: _Item) -> _Item:
    return replace(item, late=True)  # type: ignore[type-var]
