"""Each wrong job file is told exactly as it was read and accepted: the code, the place, the reason, the fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.checking.rules import every_rule
from smdp_launch.diagnostics import Diagnostic
from tests.support.job_files.wrong_files import as_json, as_text, diagnostics, folders

FOLDERS = folders()


def told_about(folder: Path, monkeypatch: pytest.MonkeyPatch, nobody: Path) -> list[Diagnostic]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(nobody))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(nobody))
    monkeypatch.chdir(folder)
    return diagnostics()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_wrong_file_is_told_as_expected(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = told_about(folder, monkeypatch, tmp_path)
    assert as_text(found) == (folder / "expected.txt").read_text()
    assert as_json(found) == (folder / "expected.json").read_text()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_is_told_names_a_line_and_a_fix(folder: Path) -> None:
    for one in json.loads((folder / "expected.json").read_text()):
        assert one["span"]["line"] > 0
        assert one["help"]


def test_a_file_is_named_for_each_mistake_that_the_sdk_passes_in_silence() -> None:
    numbers = {int(one.name.split("-")[1]) for one in FOLDERS if one.name.startswith("sdk-")}
    assert numbers == set(range(1, 36))


def test_there_are_many_more() -> None:
    assert len([one for one in FOLDERS if not one.name.startswith("sdk-")]) >= 60


def test_every_rule_that_a_file_can_break_is_among_them() -> None:
    told = {one["code"] for folder in FOLDERS for one in json.loads((folder / "expected.json").read_text())}
    # These need a run on this machine, a large folder, and a launch on AWS.
    assert {one.code for one in every_rule()} - told == {"SMDP407", "SMDP409", "SMDP801"}


def test_ten_mistakes_are_told_as_ten_at_ten_lines() -> None:
    (folder,) = [one for one in FOLDERS if one.name == "ten-mistakes"]
    found = json.loads((folder / "expected.json").read_text())
    assert len({one["code"] for one in found}) == len({one["span"]["line"] for one in found}) == len(found) == 10
