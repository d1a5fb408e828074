"""The numbers that an event line has for trackers."""

import json
import math
from typing import Any, List

import pytest

from smdp_engine.tracking.numbers import Numbers, Report


def line(event: str, **fields: Any) -> str:
    return json.dumps({"smdp_event": 1, "event": event, "time": 100.0, "rank": 0, **fields})


def test_step_gives_its_metrics() -> None:
    found = Numbers().read(line("step", step=3, steps=9, loss=0.5, seen=12, text="x", flag=True, infinite="-inf"))
    assert found == Report(100.0, 3, {"loss": 0.5, "seen": 12.0, "infinite": -math.inf})


def test_other_events_have_their_name_and_the_last_step() -> None:
    numbers = Numbers()
    numbers.read(line("step", step=7, steps=9))
    assert numbers.read(line("validation", accuracy=0.5)) == Report(100.0, 7, {"validation/accuracy": 0.5})
    assert numbers.read(line("result", accuracy=1)) == Report(100.0, 7, {"result/accuracy": 1.0}, is_result=True)


def test_timing_gives_shares_of_the_window_and_speed() -> None:
    fields = {"window": 4.0, "input_s": 1.0, "forward_s": 3.0, "steps": 8, "samples": 0, "gpu_memory_bytes": 5}
    found = Numbers().read(line("timing", **fields))
    assert found is not None
    assert found.values == {
        "timing/input": 0.25,
        "timing/forward": 0.75,
        "timing/steps_per_second": 2.0,
        "timing/gpu_memory_bytes": 5.0,
    }


def test_without_reported_steps_the_measured_ones_count() -> None:
    numbers = Numbers()
    assert [numbers.read(line("timing", window=1.0, input_s=1.0, steps=5)).step for _ in range(3)] == [5, 10, 15]  # type: ignore[union-attr]
    numbers.read(line("step", step=2, steps=9))
    assert numbers.read(line("timing", window=1.0, input_s=1.0, steps=5)).step == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"event": 1}',
        line("step", step=1, steps=2),
        line("timing", window=0, input_s=1),
        "[" * 9999,
    ],
)
def test_line_without_numbers_gives_nothing(text: str) -> None:
    assert Numbers().read(text) is None


def test_number_of_names_is_limited() -> None:
    numbers = Numbers()
    first = numbers.read(line("step", step=1, steps=2, **{f"metric{one}": one for one in range(600)}))
    second = numbers.read(line("step", step=2, steps=2, one_more=1.0, metric0=2))
    assert first is not None
    assert second is not None
    assert len(first.values) == 512
    assert second.values == {"metric0": 2.0}


def test_metrics_beyond_the_limit_are_named_once() -> None:
    said: List[str] = []
    numbers = Numbers(said.append)
    for _ in range(2):
        numbers.read(line("step", step=1, steps=2, **{f"metric{one}": one for one in range(515)}))
    assert said == ["the run has more than 512 metrics: 'metric512' and later ones are not sent"]


@pytest.mark.parametrize("step", [2**63, -(2**63) - 1])
def test_step_of_more_than_64_bits_is_left_out_and_named_once(step: int) -> None:
    said: List[str] = []
    numbers = Numbers(said.append)
    numbers.read(line("step", step=7, steps=9, loss=1.0))
    assert [numbers.read(line("step", step=step, steps=9, loss=2.0)) for _ in range(2)] == [None, None]
    assert numbers.read(line("validation", accuracy=0.5)) == Report(100.0, 7, {"validation/accuracy": 0.5})
    assert said == ["no tracker stores a step of more than 64 bits: reports with such a step are not sent"]


@pytest.mark.parametrize("steps", ["inf", "nan", 1e400, 2**63])
def test_impossible_number_of_measured_steps_does_not_stop_the_reports(steps: object) -> None:
    numbers = Numbers()
    numbers.read(line("timing", window=1.0, input_s=1.0, steps=steps))
    found = numbers.read(line("step", step=1, steps=2, loss=1.0))
    assert found == Report(100.0, 1, {"loss": 1.0})
