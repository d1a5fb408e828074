"""The edits of planted_waits.py apply to the adapter's current sources; that program tests with them."""

import planted_waits
import pytest


@pytest.mark.parametrize("wait", planted_waits.WAITS, ids=lambda wait: wait.name)
def test_wait_can_be_removed_at_exactly_one_place(wait: planted_waits.Wait) -> None:
    text = (planted_waits.ADAPTERS / "torch" / wait.file).read_text(encoding="utf-8")
    assert planted_waits.edited(text, wait) != text
    assert set(wait.cases) <= set(planted_waits.all_cases())
