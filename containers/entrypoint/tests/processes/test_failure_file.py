"""The failure file has the script's own text, then the first cause; it can be written on a full disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from smdp_entrypoint.processes.failure import LONGEST_FILE
from smdp_entrypoint.processes.failure_file import FailureFile


@pytest.fixture
def file(tmp_path: Path) -> FailureFile:
    return FailureFile(tmp_path / "output/failure")


def write_as_script(file: FailureFile, text: str) -> None:
    file.path.parent.mkdir(exist_ok=True)
    file.path.write_text(text)


def test_scripts_own_text_stays_first(file: FailureFile) -> None:
    write_as_script(file, "my reason\n")
    file.write("ours\nmore")
    file.write("ours\nmore")
    assert file.path.read_text() == "my reason\nours\nmore"


def test_later_text_replaces_earlier_text(file: FailureFile) -> None:
    write_as_script(file, "my reason\n")
    file.write("lost a peer (rank 0)\nits traceback")
    file.write("out of memory (rank 3)\nlost a peer (rank 0)\nits traceback")
    assert file.path.read_text() == "my reason\nout of memory (rank 3)\nlost a peer (rank 0)\nits traceback"


def test_script_may_overwrite_the_entrypoints_text(file: FailureFile) -> None:
    file.write("ours")
    write_as_script(file, "my reason\n")
    file.write("ours")
    assert file.path.read_text() == "my reason\nours"


def test_script_may_append_to_the_entrypoints_text(file: FailureFile) -> None:
    file.write("ours")
    with file.path.open("a") as stream:
        stream.write("\nmy reason")
    file.write("ours, and more")
    assert file.path.read_text() == "my reason\nours, and more"


def test_long_text_of_the_script_is_unchanged(file: FailureFile) -> None:
    write_as_script(file, "y" * 3000)
    file.write("ours")
    assert file.path.read_text() == "y" * 3000
    write_as_script(file, "y" * 1020)
    file.write("ours and more")
    assert file.path.read_text() == "y" * 1020 + "\nour"


def test_reserved_space_has_no_file_name(file: FailureFile) -> None:
    file.reserve_room()
    assert list(file.path.parent.iterdir()) == []
    file.write("x" * 2 * LONGEST_FILE)
    assert file.path.read_text() == "x" * LONGEST_FILE
