"""One place has the version; the others repeat it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import smdp_launch
from tools.release import version


def test_every_place_has_the_version_of_the_launcher() -> None:
    assert version.differing() == []
    assert version.version() == smdp_launch.__version__


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for place in (version.SOURCE, *version.REPEATS):
        (tmp_path / place.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(version.ROOT / place.file, tmp_path / place.file)
    return tmp_path


def test_a_place_that_differs_is_named_with_both_versions(copy: Path) -> None:
    file = copy / "native" / "pyproject.toml"
    now = version.version()
    file.write_text(file.read_text().replace(f'"{now}"', '"9.9.9"'))
    assert version.differing(copy) == [f"native/pyproject.toml has 9.9.9, pyproject.toml has {now}"]


def test_a_new_version_is_written_in_every_place_and_nowhere_else(copy: Path) -> None:
    before = {place.file: (copy / place.file).read_text() for place in (version.SOURCE, *version.REPEATS)}
    now = version.version()
    version.write("8.7.6", copy)
    assert (version.version(copy), version.differing(copy)) == ("8.7.6", [])
    for file, text in before.items():
        changed = (copy / file).read_text().replace("8.7.6", now)
        assert changed == text, file


@pytest.mark.parametrize("wrong", ["1", "v1.2.3", "1.2.3 ", "1.2.3+local"])
def test_what_is_no_version_is_refused_and_nothing_is_written(copy: Path, wrong: str) -> None:
    with pytest.raises(SystemExit, match="is not a version"):
        version.write(wrong, copy)
    assert version.version(copy) == version.version()
