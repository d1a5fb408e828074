"""Save intervals and reported steps: which gap between two checkpoints is a stall."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdp_launch.jobs.checkpoints.intervals import ReportedSteps, SaveIntervals

ZERO = datetime(2026, 11, 21, tzinfo=timezone.utc)
MINUTE, HOUR = 60.0, 3600.0


def at(seconds: float) -> datetime:
    return ZERO + timedelta(seconds=seconds)


def intervals_of(*times: float) -> SaveIntervals:
    intervals = SaveIntervals()
    intervals.start(ZERO)
    intervals.add([at(one) for one in times])
    return intervals


def test_unknown_interval_makes_half_an_hour_a_stall() -> None:
    assert intervals_of().limit == 30 * MINUTE
    assert intervals_of(5).limit == 30 * MINUTE
    assert intervals_of(5, 5 * MINUTE, 10 * MINUTE).limit == 30 * MINUTE


def test_late_first_checkpoint_raises_limit_for_the_second() -> None:
    assert intervals_of(2 * HOUR).limit == 6 * HOUR


def test_limit_is_three_times_the_longest_gap_and_at_least_ten_minutes() -> None:
    quarters = [one * 15 * MINUTE for one in range(1, 6)]
    assert intervals_of(*quarters).limit == 45 * MINUTE
    assert intervals_of(*quarters, quarters[-1] + 20 * MINUTE).limit == HOUR
    assert intervals_of(*(one * 30.0 for one in range(100))).limit == 10 * MINUTE


def test_time_to_first_file_is_no_gap() -> None:
    assert intervals_of(*(HOUR + one * 5 * MINUTE for one in range(8))).limit == 15 * MINUTE


def test_reported_stall_raises_limit_only_once() -> None:
    intervals = intervals_of(*(one * 10 * MINUTE for one in range(1, 6)))
    assert intervals.limit == 30 * MINUTE
    intervals.add([at(50 * MINUTE + 10 * HOUR)], after_stall=True)
    assert intervals.limit == 90 * MINUTE


def test_interruption_resets_limit_to_that_of_a_first_file() -> None:
    intervals = intervals_of(*(one * 5 * MINUTE for one in range(1, 10)))
    assert intervals.limit == 15 * MINUTE
    assert intervals.start(at(5 * HOUR))
    assert (intervals.since, intervals.limit) == (at(5 * HOUR), 30 * MINUTE)
    intervals.add([at(5 * HOUR + 60)])
    assert intervals.limit == 15 * MINUTE


seconds = st.lists(st.integers(0, 100_000), max_size=30)


@given(seconds, st.lists(st.integers(0, 30)), st.randoms())
def test_order_and_repetition_of_listings_do_not_change_limit(times: list[int], cuts: list[int], chance: Any) -> None:
    whole, parts = intervals_of(*times), intervals_of()
    ordered = sorted(times)
    for cut in sorted(cuts):
        seen = ordered[:cut]
        chance.shuffle(seen)
        parts.add([at(one) for one in seen])
    parts.add([at(one) for one in ordered])
    assert (parts.limit, parts.since, parts.is_known) == (whole.limit, whole.since, whole.is_known)


@given(st.integers(1, 40), st.integers(60, 7200), st.lists(st.integers(1, 50), max_size=8))
def test_several_files_of_one_checkpoint_do_not_change_limit(count: int, period: int, burst: list[int]) -> None:
    """The limit is that of one file per checkpoint, or lower by the length of a burst."""
    alone = [period * one for one in range(1, count + 1)]
    together = [one + late for one in alone for late in [0, *burst]]
    # With several files the interval is known earlier, by the length of a burst at most.
    if intervals_of(*alone).is_known:
        assert 0 <= intervals_of(*alone).limit - intervals_of(*together).limit <= 3 * max(burst, default=0)


@given(st.integers(1, 3 * 3600), st.integers(1, 30))
def test_steady_job_never_stalls(period: int, count: int) -> None:
    intervals = intervals_of(period)
    for one in range(2, count + 2):
        assert intervals.limit > period
        intervals.add([at(period * one)])


def test_sampled_steps_give_the_last_step_by_a_time() -> None:
    steps = ReportedSteps(most=64)
    for step in range(1, 10_001):
        steps.note(step * 1000, step)
    assert steps.now == 10_000
    then = steps.at(5_000_500)
    assert then is not None
    assert 5000 - 2 * 10_000 // 64 <= then <= 5000
    steps.forget(9_999_999)
    assert (steps.at(5_000_500), steps.now) == (None, 10_000)


@pytest.mark.parametrize("step", [None, True, -1, 1.5, "3", 10**400])
def test_invalid_step_is_ignored(step: object) -> None:
    steps = ReportedSteps()
    steps.note(1, step)
    assert steps.now is None
