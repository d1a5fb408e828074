"""Lines of many hosts are sorted by time; late lines are marked, and no line is lost or repeated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.jobs.follow import StatusChanged
from smdp_launch.jobs.logs.merge import WINDOW, Merge
from smdp_launch.jobs.logs.messages import LogLine


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def line(host: str, time_ms: int, text: str = "") -> LogLine:
    return LogLine(host, 0, text, time_ms)


def times(lines: Sequence[LogLine]) -> list[tuple[str, int, bool]]:
    return [(one.host, one.time_ms, one.late) for one in lines]


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_line_is_delayed_until_a_line_two_seconds_later(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000), line("a", 11_000)])
    merge.add("b", [line("b", 10_500)])
    assert list(merge.take()) == []
    merge.add("b", [line("b", 12_600)])
    assert times(list(merge.take())) == [("a", 10_000, False), ("b", 10_500, False)]


def test_line_is_delayed_by_at_most_two_seconds(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000)])
    clock.now = 1.9
    assert list(merge.take()) == []
    clock.now = 2.0
    assert times(list(merge.take())) == [("a", 10_000, False)]


def test_line_does_not_overtake_an_unread_stream(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000)])
    merge.add("b", [line("b", 60_000)])
    clock.now = 100.0
    assert times(list(merge.take(behind=["a"]))) == [("a", 10_000, False)]
    merge.add("a", [line("a", 30_000)])
    assert times(list(merge.take())) == [("a", 30_000, False), ("b", 60_000, False)]


def test_late_line_is_released_at_once_and_marked(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000), line("a", 20_000)])
    assert times(list(merge.take())) == [("a", 10_000, False)]
    merge.add("b", [line("b", 9_000)])
    assert times(list(merge.take())) == [("b", 9_000, True)]


def test_clock_going_back_keeps_the_order_of_a_stream(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000, "first"), line("a", 5_000, "second"), line("a", 30_000)])
    assert [one.text for one in merge.take()] == ["first", "second"]


def test_status_change_is_sorted_but_not_delayed(clock: Clock) -> None:
    merge: Merge[LogLine | StatusChanged] = Merge(clock=clock)
    changed = StatusChanged("Training", "", 10_000)
    merge.note(changed)
    assert list(merge.take()) == [changed]
    later = StatusChanged("Uploading", "", 12_000)
    merge.add("a", [line("a", 11_000)])
    merge.note(later)
    assert list(merge.take()) == []
    assert list(merge.rest()) == [line("a", 11_000), later]


#: By how much each line's clock advances (or goes back), and after how many seconds the line arrives.
STREAM = st.lists(st.tuples(st.integers(-500, 3_000), st.floats(0, 3)), max_size=20)


@given(st.lists(STREAM, min_size=1, max_size=4))
def test_any_arrival_order_keeps_every_line_once_and_in_stream_order(streams: list[list[tuple[int, float]]]) -> None:
    clock = Clock()
    merge: Merge[LogLine] = Merge(clock=clock)
    arrivals = []
    for number, steps in enumerate(streams):
        at, when = 10_000, 0.0
        for index, (ahead, gap) in enumerate(steps):
            at, when = at + ahead, when + gap
            arrivals.append((when, number, line(str(number), at, str(index))))
    taken: list[LogLine] = []
    for when, number, one in sorted(arrivals, key=lambda arrival: arrival[:2]):
        clock.now = when
        merge.add(str(number), [one])
        taken += merge.take()
    taken += merge.rest()
    for number, steps in enumerate(streams):
        assert [one.text for one in taken if one.host == str(number)] == [str(index) for index in range(len(steps))]
    assert_in_order(taken)


def assert_in_order(taken: Sequence[LogLine]) -> None:
    """Ignores marked lines. A line counts as no earlier than the line before it in its stream."""
    counted: dict[str, int] = {}
    latest = 0
    for one in taken:
        counted[one.host] = max(one.time_ms, counted.get(one.host, 0))
        assert one.late == (counted[one.host] < latest)
        latest = max(latest, counted[one.host])


def test_the_window_is_two_seconds() -> None:
    assert WINDOW == 2000
