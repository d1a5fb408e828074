"""Each wrong job file gives exactly the reviewed diagnostics: code, place, reason and fix."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.checking.rules import every_rule
from tests.support.job_files.wrong_files import as_json, as_text, diagnostics, folders

FOLDERS = folders()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.usefixtures("user_defaults")
def test_wrong_file_gives_expected_diagnostics(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    found = diagnostics()
    assert as_text(found) == (folder / "expected.txt").read_text()
    assert as_json(found) == (folder / "expected.json").read_text()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_expected_diagnostic_has_a_line_and_help(folder: Path) -> None:
    for one in json.loads((folder / "expected.json").read_text()):
        assert one["span"]["line"] > 0
        assert one["help"]


def test_there_is_a_file_for_each_error_that_the_sdk_ignores() -> None:
    numbers = {int(one.name.split("-")[1]) for one in FOLDERS if one.name.startswith("sdk-")}
    assert numbers == set(range(1, 36))


def test_there_are_sixty_more_wrong_files() -> None:
    assert len([one for one in FOLDERS if not one.name.startswith("sdk-")]) >= 60


def test_every_rule_that_a_file_can_break_has_a_wrong_file() -> None:
    reported = {one["code"] for folder in FOLDERS for one in json.loads((folder / "expected.json").read_text())}
    # These need a local run, a large folder, and a launch on AWS.
    assert {one.code for one in every_rule()} - reported == {"SMDP407", "SMDP409", "SMDP801"}


def test_ten_errors_give_ten_diagnostics_at_ten_lines() -> None:
    (folder,) = [one for one in FOLDERS if one.name == "ten-errors"]
    found = json.loads((folder / "expected.json").read_text())
    assert len({one["code"] for one in found}) == len({one["span"]["line"] for one in found}) == len(found) == 10
