"""Series of a run with a bounded size: a run of days takes as much memory as a run of minutes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


@dataclass(frozen=True)
class Window:
    """Numbers of a period.

    Args:
        begin: seconds since 1970.
        end: the same.
        values: sums over the period, by name; seconds, bytes or counts.
        length: seconds that the sums cover, without pauses and jumps of the clock; None: all of the period.
    """

    begin: float
    end: float
    values: Mapping[str, float]
    length: float | None = None

    @property
    def seconds(self) -> float:
        return self.length if self.length is not None else self.end - self.begin

    def joined(self, later: Window) -> Window:
        """This window and the next one. A pause between them is no part of the sums."""
        names = self.values.keys() | later.values.keys()
        sums = {name: self.values.get(name, 0.0) + later.values.get(name, 0.0) for name in names}
        return Window(self.begin, later.end, sums, self.seconds + later.seconds)


_Self = TypeVar("_Self")


class _Joinable(Protocol):
    def joined(self: _Self, later: _Self) -> _Self: ...


_Item = TypeVar("_Item", bound=_Joinable)


class _Series(Generic[_Item]):
    """Items in the order of their time. When there are more than ``most``, neighbours are joined, two at a time.

    Args:
        most: an even number.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._items: list[_Item] = []
        self._joined = 1  # added items in each item
        self._open = 0  # added items in the last item

    def _append(self, item: _Item) -> None:
        if self._items and 0 < self._open < self._joined:
            self._items[-1] = self._items[-1].joined(item)
            self._open += 1
            return
        if len(self._items) >= self.most:
            pairs = zip(self._items[::2], self._items[1::2], strict=True)
            self._items = [first.joined(second) for first, second in pairs]
            self._joined *= 2
        self._items.append(item)
        self._open = 1


class WindowSeries(_Series[Window]):
    """Consecutive windows."""

    def __init__(self, most: int = 512) -> None:
        super().__init__(most)

    @property
    def windows(self) -> list[Window]:
        return self._items

    def add(self, window: Window) -> None:
        self._append(window)

    @property
    def latest(self) -> Window | None:
        return self.windows[-1] if self.windows else None

    def total(self) -> Window | None:
        """The sums of all windows; None if there are none."""
        return self._sum(self.windows)

    def recent(self, seconds: float, since: int = 0) -> Window | None:
        """The sums of the last windows that cover at most so many seconds; at least those of the last one.

        They are found by their length, since the clock of a host may jump.

        Args:
            since: number of windows at the beginning that are left out.
        """
        first, covered = len(self.windows), 0.0
        while first > since and (first == len(self.windows) or covered + self.windows[first - 1].seconds <= seconds):
            first -= 1
            covered += self.windows[first].seconds
        return self._sum(self.windows[first:])

    @staticmethod
    def _sum(chosen: Sequence[Window]) -> Window | None:
        if not chosen:
            return None
        sums: dict[str, float] = {}
        for one in chosen:
            for name, value in one.values.items():
                sums[name] = sums.get(name, 0.0) + value
        return Window(chosen[0].begin, chosen[-1].end, sums, sum(one.seconds for one in chosen))


@dataclass(frozen=True)
class Bin:
    """Consecutive values of a metric.

    Args:
        time: of the last value, in seconds since 1970.
        step: of the last value.
    """

    time: float
    step: int
    values: int
    mean: float
    least: float
    greatest: float

    def joined(self, later: Bin) -> Bin:
        values = self.values + later.values
        mean = self.mean + (later.mean - self.mean) * (later.values / values)
        least, greatest = min(self.least, later.least), max(self.greatest, later.greatest)
        return Bin(later.time, later.step, values, mean, least, greatest)


class MetricSeries(_Series[Bin]):
    """The values of one metric by step, in bins.

    Attributes:
        last: the last value; None if that is no finite number.
        not_finite: the last value as text, such as ``nan``, if it is no finite number.
        since: the step of the first value that is not finite, after the last finite one.
    """

    def __init__(self, most: int = 1024) -> None:
        super().__init__(most)
        self.last: float | None = None
        self.not_finite: str | None = None
        self.since: int | None = None

    @property
    def bins(self) -> list[Bin]:
        return self._items

    def add(self, time: float, step: int, value: float) -> None:
        self.last, self.not_finite, self.since = value, None, None
        self._append(Bin(time, step, 1, value, value, value))

    def add_not_finite(self, step: int, text: str) -> None:
        """Note a value such as ``nan``. It is in no bin."""
        self.since = step if self.not_finite is None else self.since
        self.last, self.not_finite = None, text

    def shown(self, digits: int = 4) -> str | None:
        """The last value as text, such as ``0.3127`` or ``nan since step 50``; None without a value."""
        if self.not_finite is not None:
            return f"{self.not_finite} since step {self.since}"
        return f"{self.last:.{digits}g}" if self.last is not None else None

    def __iter__(self) -> Iterator[Bin]:
        return iter(self.bins)
