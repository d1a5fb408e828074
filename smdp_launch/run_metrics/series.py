"""Series of a run with a bounded size: a run of days takes as much memory as a run of minutes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar


@dataclass(frozen=True)
class Window:
    """Numbers of a period.

    Args:
        begin: seconds since 1970.
        end: the same.
        values: sums over the period, by name; seconds, bytes or counts.
    """

    begin: float
    end: float
    values: Mapping[str, float]

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def joined(self, later: Window) -> Window:
        """This window and the next one. A pause between them is no part of the sums."""
        names = self.values.keys() | later.values.keys()
        sums = {name: self.values.get(name, 0.0) + later.values.get(name, 0.0) for name in names}
        return Window(self.begin, later.end, sums)


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

    def total(self, since: float = 0.0) -> Window | None:
        """The sums of all windows that began at ``since`` (seconds since 1970) or later; None if there are none."""
        chosen = [one for one in self.windows if one.begin >= since]
        if not chosen:
            return None
        sums: dict[str, float] = {}
        for one in chosen:
            for name, value in one.values.items():
                sums[name] = sums.get(name, 0.0) + value
        return Window(chosen[0].begin, chosen[-1].end, sums)


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
        last: the last value.
    """

    def __init__(self, most: int = 1024) -> None:
        super().__init__(most)
        self.last: float | None = None

    @property
    def bins(self) -> list[Bin]:
        return self._items

    def add(self, time: float, step: int, value: float) -> None:
        self.last = value
        self._append(Bin(time, step, 1, value, value, value))

    def __iter__(self) -> Iterator[Bin]:
        return iter(self.bins)
