"""Series of a run with a bounded size: a run of days takes as much memory as a run of minutes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


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


@dataclass
class WindowSeries:
    """Consecutive windows. When there are more than ``most``, neighbours are joined, two at a time.

    Args:
        most: an even number.
    """

    most: int = 512
    windows: list[Window] = field(default_factory=list)
    _joined: int = 1  # windows of the source in each window
    _open: int = 0  # windows of the source in the last window

    def add(self, window: Window) -> None:
        if self.windows and 0 < self._open < self._joined:
            self.windows[-1] = self.windows[-1].joined(window)
            self._open += 1
            return
        if len(self.windows) >= self.most:
            pairs = zip(self.windows[::2], self.windows[1::2], strict=True)
            self.windows = [first.joined(second) for first, second in pairs]
            self._joined *= 2
        self.windows.append(window)
        self._open = 1

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


@dataclass
class MetricSeries:
    """The values of one metric by step, in bins. When there are more than ``most``, neighbours are joined.

    Args:
        most: an even number.
        last: the last value.
    """

    most: int = 1024
    last: float | None = None
    bins: list[Bin] = field(default_factory=list)
    _joined: int = 1
    _open: int = 0

    def add(self, time: float, step: int, value: float) -> None:
        self.last = value
        one = Bin(time, step, 1, value, value, value)
        if self.bins and 0 < self._open < self._joined:
            self.bins[-1] = self.bins[-1].joined(one)
            self._open += 1
            return
        if len(self.bins) >= self.most:
            pairs = zip(self.bins[::2], self.bins[1::2], strict=True)
            self.bins = [first.joined(second) for first, second in pairs]
            self._joined *= 2
        self.bins.append(one)
        self._open = 1

    def __iter__(self) -> Iterator[Bin]:
        return iter(self.bins)
