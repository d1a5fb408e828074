"""Lines of many hosts come in the order of their times; what is late is marked, and nothing is lost or doubled."""

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


def test_a_line_waits_for_one_that_is_two_seconds_later(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000), line("a", 11_000)])
    merge.add("b", [line("b", 10_500)])
    assert list(merge.take()) == []
    merge.add("b", [line("b", 12_600)])
    assert times(list(merge.take())) == [("a", 10_000, False), ("b", 10_500, False)]


def test_where_nothing_comes_a_line_is_held_for_two_seconds_at_most(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000)])
    clock.now = 1.9
    assert list(merge.take()) == []
    clock.now = 2.0
    assert times(list(merge.take())) == [("a", 10_000, False)]


def test_a_stream_of_which_more_is_to_come_is_not_overtaken(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000)])
    merge.add("b", [line("b", 60_000)])
    clock.now = 100.0
    assert times(list(merge.take(behind=["a"]))) == [("a", 10_000, False)]
    merge.add("a", [line("a", 30_000)])
    assert times(list(merge.take())) == [("a", 30_000, False), ("b", 60_000, False)]


def test_a_late_line_is_let_through_at_once_and_marked(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000), line("a", 20_000)])
    assert times(list(merge.take())) == [("a", 10_000, False)]
    merge.add("b", [line("b", 9_000)])
    assert times(list(merge.take())) == [("b", 9_000, True)]


def test_a_clock_that_goes_back_does_not_change_the_order_within_a_stream(clock: Clock) -> None:
    merge: Merge[LogLine] = Merge(clock=clock)
    merge.add("a", [line("a", 10_000, "first"), line("a", 5_000, "second"), line("a", 30_000)])
    assert [one.text for one in merge.take()] == ["first", "second"]


def test_a_change_of_status_stands_among_the_lines_but_waits_for_none(clock: Clock) -> None:
    merge: Merge[LogLine | StatusChanged] = Merge(clock=clock)
    changed = StatusChanged("Training", "", 10_000)
    merge.note(changed)
    assert list(merge.take()) == [changed]
    later = StatusChanged("Uploading", "", 12_000)
    merge.add("a", [line("a", 11_000)])
    merge.note(later)
    assert list(merge.take()) == []
    assert list(merge.rest()) == [line("a", 11_000), later]


#: How far each line's clock goes on (or back), and after how many seconds it arrives.
STREAM = st.lists(st.tuples(st.integers(-500, 3_000), st.floats(0, 3)), max_size=20)


@given(st.lists(STREAM, min_size=1, max_size=4))
def test_whatever_comes_whenever_none_is_lost_none_doubled_and_each_stream_keeps_its_order(
    streams: list[list[tuple[int, float]]],
) -> None:
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
    """But for those that are marked; a line counts as no earlier than the one before it in its stream."""
    counted: dict[str, int] = {}
    latest = 0
    for one in taken:
        counted[one.host] = max(one.time_ms, counted.get(one.host, 0))
        assert one.late == (counted[one.host] < latest)
        latest = max(latest, counted[one.host])


def test_the_window_is_two_seconds() -> None:
    assert WINDOW == 2000
