"""The numbers that an event line has for trackers."""

import json
import math
from typing import Any

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
