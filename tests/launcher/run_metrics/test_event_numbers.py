"""Numbers of an event that a float cannot hold."""

from __future__ import annotations

import pytest

from smdp_launch.jobs.logs.messages import JobEvent, read_line


@pytest.mark.parametrize(
    ("text", "value"),
    [("1" + "0" * 400, "inf"), ("-1" + "0" * 400, "-inf"), ("1e400", "inf"), ("NaN", "nan"), (str(1 << 60), 1 << 60)],
)
def test_number_too_large_for_a_float_is_the_name_of_infinity(text: str, value: object) -> None:
    event = read_line("algo-1", f'[algo-1:0] {{"smdp_event": 1, "event": "step", "loss": {text}}}', 0)
    assert isinstance(event, JobEvent)
    assert event.fields["loss"] == value
