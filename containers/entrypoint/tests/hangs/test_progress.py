"""When a rank counts as one that hangs, by a virtual clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smdp_entrypoint.contract.settings import HangSettings
from smdp_entrypoint.hangs.progress import LONGEST_BUSY_S, RankProgress

SETTINGS = HangSettings("report", after=60.0, factor=10.0)


def timing(rank: int = 0, window: float = 5.0, **fields: Any) -> str:
    return json.dumps({"smdp_event": 1, "event": "timing", "rank": rank, "window": window, **fields})


def step(number: int, of: int) -> str:
    return json.dumps({"smdp_event": 1, "event": "step", "rank": 0, "step": number, "steps": of})


def measured(*events: tuple[float, str], by_engine: bool = True) -> RankProgress:
    progress = RankProgress(0)
    for now, line in events:
        progress.read(line, now, by_engine=by_engine)
    return progress


def trained(step_s: float = 0.5, windows: int = 5) -> RankProgress:
    return measured(*[(5.0 * number, timing(steps=int(5.0 / step_s))) for number in range(1, windows + 1)])


def test_limit_is_the_floor_for_short_steps_and_a_multiple_of_long_ones() -> None:
    assert trained(0.5).limit(SETTINGS) == 60.0
    long_steps = measured(*[(20.0 * number, timing(steps=1)) for number in range(1, 6)])
    assert long_steps.usual == pytest.approx(20.0)
    assert long_steps.limit(SETTINGS) == pytest.approx(200.0)


def test_limit_is_never_shorter_than_two_windows() -> None:
    assert trained().limit(HangSettings("report", after=0.0, factor=1.0)) == pytest.approx(10.0)


def test_rank_without_steps_or_in_its_first_step_has_no_limit() -> None:
    assert RankProgress(0).limit(SETTINGS) is None
    assert measured((5.0, timing(forward_s=5.0)), (500.0, timing(forward_s=5.0))).limit(SETTINGS) is None
    first = measured((600.0, timing(steps=1)))
    assert first.limit(SETTINGS) is None


def test_long_first_step_does_not_change_the_usual_one() -> None:
    compiled = measured((600.0, timing(steps=1)), *[(600.0 + 5 * number, timing(steps=10)) for number in range(1, 6)])
    assert compiled.usual == pytest.approx(0.5)


def test_progress_is_a_step_a_batch_or_a_checkpoint() -> None:
    for field in ("steps", "batches", "checkpoints"):
        progress = trained()
        progress.read(timing(forward_s=5.0), 90.0, by_engine=True)
        assert progress.idle(90.0) == pytest.approx(65.0)
        progress.read(timing(**{field: 1}), 91.0, by_engine=True)
        assert progress.idle(91.0) == 0.0, field


def test_save_and_evaluation_count_as_busy_for_a_limited_time() -> None:
    for field in ("checkpoint_s", "evaluation_s"):
        progress = trained()
        for now in range(30, 30 + int(LONGEST_BUSY_S) + 200, 5):
            progress.read(timing(**{field: 5.0}), float(now), by_engine=True)
            if now < LONGEST_BUSY_S:
                assert progress.idle(float(now)) == 0.0
        assert progress.idle(float(now)) > 100.0, field


def test_last_step_ends_the_watch() -> None:
    progress = measured(*[(float(number), step(number, 10)) for number in range(1, 10)], by_engine=False)
    assert progress.limit(SETTINGS) == 60.0
    progress.read(step(10, 10), 10.0, by_engine=False)
    assert progress.is_done
    assert progress.limit(SETTINGS) is None


def test_script_that_reports_every_hundredth_step_is_measured_by_its_reports() -> None:
    progress = measured(*[(100.0 * number, step(100 * number, 5000)) for number in range(1, 6)], by_engine=False)
    assert progress.usual == pytest.approx(100.0)
    assert progress.limit(SETTINGS) == pytest.approx(1000.0)


@pytest.mark.parametrize(
    "line",
    ["", "loss 0.3", '{"smdp_event": 1', '{"smdp_event":1}', '{"smdp_event":[]}', timing(rank=1, steps=5), "\x00"],
)
def test_other_lines_say_nothing(line: str) -> None:
    progress = measured((1.0, line))
    assert (progress.last, progress.usual, progress.phase) == (None, None, None)


def test_script_cannot_write_the_engines_event() -> None:
    progress = measured(*[(float(number), timing(steps=5)) for number in range(1, 9)], by_engine=False)
    assert progress.last is None


@pytest.mark.parametrize("value", [True, "5", None, [1], -3, {}])
def test_malformed_numbers_count_as_nothing(value: Any) -> None:
    line = timing(steps=value, waits_for=value, operation=value)
    assert measured((1.0, line), (2.0, line)).last is None


def test_phase_is_the_one_that_filled_the_window() -> None:
    assert measured((5.0, timing(exchange_s=4.9, waits_for=[3], operation="all_reduce"))).phase == "exchange"
    assert measured((5.0, timing(forward_s=2.0, input_s=2.0))).phase is None
    assert measured((5.0, timing(other_s=4.9))).phase == "other"
