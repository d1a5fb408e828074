"""The bugs of mutants.py can be inserted into the engine's current sources; `make test-planted` tests with them."""

import mutants
import pytest


@pytest.mark.parametrize("bug", mutants.BUGS, ids=lambda bug: bug.name)
def test_mutation_applies_at_exactly_one_place(bug: mutants.Bug) -> None:
    text = (mutants.NATIVE / "engine" / bug.file).read_text(encoding="utf-8")
    assert text.count(bug.right) == 1
    assert bug.wrong != bug.right
