"""The edits of waits.py apply to the adapter's current sources, and no wait of them is without an edit.

planted_waits.py tests with the edited sources.
"""

import re
from typing import List

import planted_waits
import pytest
import waits

# A wait for a device, or for a step of a call on it.
WAIT = re.compile(
    r"(?<!auto )\w+\.block\(|query\(\)|->recordDataPtr|streams_\.recordDataPtr|note_use\((?!const)|block_caller\(\);"
    r"|->wait\((?!timeout)|copies\.emplace\(|guard\.emplace\(\*beside_|used_\.empty\(\) \|\|"
)
# No test can find its removal: the callback of the work's future notes the results on a stream that waits for the work.
NOTED_BY_THE_FUTURE = (
    "job.work->note_use(job.tensor);",
    "streams_->recordDataPtrOnStream(tensor.storage().data_ptr(), *beside_);",
)
FILES = ("staging.h", "work.h", "local_first.h", "host_memory.h", "request.h", "device_runtime.h")


def source(file: str) -> str:
    return (planted_waits.ADAPTERS / "torch" / file).read_text(encoding="utf-8")


def of_file(file: str) -> List[waits.Wait]:
    return [wait for wait in waits.WAITS if wait.file == file]


@pytest.mark.parametrize("wait", waits.WAITS, ids=lambda wait: wait.name)
def test_wait_can_be_removed_at_exactly_one_place(wait: waits.Wait) -> None:
    text = source(wait.file)
    assert planted_waits.edited(text, wait) != text
    assert set(wait.cases) <= set(planted_waits.all_cases())


@pytest.mark.parametrize("file", FILES)
def test_every_wait_for_a_device_is_removed_by_an_edit(file: str) -> None:
    text = source(file)
    spans = [(text.index(right), len(right)) for right in (wait.right.format() for wait in of_file(file))]
    found = list(WAIT.finditer(text))
    missing = [
        text[text.rindex("\n", 0, one.start()) + 1 : text.index("\n", one.start())].strip()
        for one in found
        if not any(begin <= one.start() and one.end() <= begin + length for begin, length in spans)
    ]
    assert missing == (list(NOTED_BY_THE_FUTURE[::-1]) if file == "local_first.h" else [])
    assert bool(found) == bool(spans)


def test_all_edits_apply_together() -> None:
    for file in FILES:
        text = source(file)
        for wait in of_file(file):
            text = planted_waits.edited(text, wait)
        assert all(f'planted("{wait.name}")' in text for wait in of_file(file))
