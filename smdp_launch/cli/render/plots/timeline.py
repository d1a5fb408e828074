"""The timeline of a rehearsal as text: a letter for each status, a column for a number of seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from smdp_launch.rehearsals.report import Moment, Status, Timeline

Row = tuple[str, str]


def ticks(length: float, most: int) -> list[float]:
    """At most ``most`` + 1 round seconds from 0 to ``length``: steps of 1, 2 or 5 times a power of ten."""
    if length <= 0:
        return [0.0]
    power = 10 ** math.floor(math.log10(length / max(1, most)))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor * most >= length * (1 - 1e-9))
    return [round(step * index, 9) for index in range(math.floor(length / step + 1e-9) + 1)]


def drawn(timeline: Timeline, columns: int) -> Iterator[Row]:
    """The lines with their names, each at most ``columns`` wide.

    A column shows the status that lasted for most of its time. A status that is too short for a column is only in
    `legend`.
    """
    yield "seconds", _axis(timeline.length_ms / 1000, columns)
    letters = _letters(timeline)
    for number, statuses in enumerate(timeline.attempts, 1):
        yield f"attempt {number}", _bar(statuses, letters, timeline.length_ms, columns)
    if timeline.faults:
        yield "fault", _marks(timeline.faults, timeline.length_ms, columns)


def legend(timeline: Timeline) -> Iterator[Row]:
    """The meaning of the letters, and the duration of each status."""
    letters = _letters(timeline)
    for number, statuses in enumerate(timeline.attempts, 1):
        entries = [f"{letters[one.name]}={one.name} {_lasted(one)}" for one in statuses]
        yield f"attempt {number}", ", ".join(entries)


def _lasted(status: Status) -> str:
    return f"{status.seconds:.1f} s" if status.end_ms > status.start_ms else f"at {status.start_ms / 1000:.1f} s"


def _letters(timeline: Timeline) -> dict[str, str]:
    """A letter for each status: the first of its name that is still free."""
    letters: dict[str, str] = {}
    for name in dict.fromkeys(one.name for statuses in timeline.attempts for one in statuses):
        free = [letter for letter in f"{name}#" if letter not in letters.values() and letter.isprintable()]
        letters[name] = free[0] if free else "?"
    return letters


def _axis(seconds: float, columns: int) -> str:
    line = [" "] * columns
    end = -1
    for tick in ticks(seconds, max(1, columns // 10)):
        label = f"{tick:g}"
        at = _column(tick * 1000, seconds * 1000, columns)
        if at > end and at + len(label) <= columns:
            line[at : at + len(label)] = label
            end = at + len(label)
    return "".join(line).rstrip()


def _bar(statuses: Sequence[Status], letters: dict[str, str], length_ms: int, columns: int) -> str:
    width = length_ms / columns or 1.0
    return "".join(_cell(statuses, letters, index * width, (index + 1) * width) for index in range(columns)).rstrip()


def _cell(statuses: Sequence[Status], letters: dict[str, str], start: float, end: float) -> str:
    shares = [(min(end, one.end_ms) - max(start, one.start_ms), letters[one.name]) for one in statuses]
    share, letter = max(shares, key=lambda one: one[0], default=(0.0, " "))
    return letter if share > 0 else " "


def _marks(moments: Sequence[Moment], length_ms: int, columns: int) -> str:
    line = [" "] * columns
    for one in moments:
        line[_column(one.at_ms, length_ms, columns)] = "^"
    return "".join(line).rstrip()


def _column(at_ms: float, length_ms: float, columns: int) -> int:
    return min(columns - 1, int(at_ms * columns / length_ms)) if length_ms else 0
