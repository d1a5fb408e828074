"""The bugs of planted.py, which has a tier of its own, can still be planted in the engine as it is."""

import planted
import pytest


@pytest.mark.parametrize("bug", planted.BUGS, ids=lambda bug: bug.name)
def test_the_edit_applies_at_one_place(bug: planted.Bug) -> None:
    text = (planted.NATIVE / "engine" / bug.file).read_text(encoding="utf-8")
    assert text.count(bug.right) == 1
    assert bug.wrong != bug.right
