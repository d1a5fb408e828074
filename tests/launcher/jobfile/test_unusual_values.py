"""Empty values, and characters that a request or a command line cannot contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from tests.conftest import JOB, write_job


def reported(folder: Path, text: str) -> list[tuple[str, int, str]]:
    job = check_job(write_job(folder, text), environ={})
    return [(one.code, one.span.line if one.span else 0, one.message) for one in job.diagnostics]


@pytest.mark.parametrize("field", ["spot", "checkpoint", "network", "amp", "image"])
def test_key_without_value_is_not_read_as_null(tmp_path: Path, field: str) -> None:
    image = next(line for line in JOB.splitlines() if line.startswith("image:"))
    text = JOB.replace(f"{image}\n", "") if field == "image" else JOB
    line = 1 + text.count("\n")
    found = reported(tmp_path, f"{text}{field}:\n\n# the end\n")
    assert [(code, at) for code, at, _ in found] == [("SMDP203", line)]
    assert field in found[0][2]


@pytest.mark.parametrize("field", ["environment", "tags", "metrics"])
def test_mapping_with_only_comments_has_no_entries(tmp_path: Path, field: str) -> None:
    assert reported(tmp_path, f"{JOB}{field}:\n  # name: value\n") == []


def test_hyperparameters_with_only_comments_are_none(tmp_path: Path) -> None:
    text = JOB.replace("hyperparameters: {epochs: 2}", "hyperparameters:\n    # epochs: 2\n")
    job = check_job(write_job(tmp_path, text), environ={})
    assert job.require()[0].script.hyperparameters == {}


def test_mapping_with_only_comments_does_not_replace_defaults(tmp_path: Path) -> None:
    (tmp_path / "smdp-defaults.yaml").write_text("tags: {team: vision}\n")
    job = check_job(write_job(tmp_path, f"{JOB}tags:\n  # cost: none\n"), environ={})
    assert job.require()[0].tags == {"team": "vision"}


def test_null_means_none(tmp_path: Path) -> None:
    assert reported(tmp_path, f"{JOB}spot: null\ncheckpoint: ~\n") == []


def test_empty_value_is_reported_at_its_key(tmp_path: Path) -> None:
    found = reported(tmp_path, JOB.replace('output: {s3: "s3://bucket/output"}', "output:"))
    line = 1 + JOB[: JOB.index("output:")].count("\n")
    assert [(code, at) for code, at, _ in found] == [("SMDP203", line)]


@pytest.mark.parametrize("written", ["\\0", "\\ud800", "\\udfff"])
@pytest.mark.parametrize("place", ["{epochs: 2}", "source: src", "name: small"])
def test_characters_that_cannot_be_sent_are_reported_once(tmp_path: Path, written: str, place: str) -> None:
    key, _, value = place.strip("{}").partition(": ")
    text = JOB.replace(place, place.replace(f"{key}: {value}", f'{key}: "x{written}"'))
    line = 1 + JOB[: JOB.index(place)].count("\n")
    assert [(code, at) for code, at, _ in reported(tmp_path, text)] == [("SMDP102", line)]


def test_character_that_yaml_forbids_is_reported_at_its_place(tmp_path: Path) -> None:
    (found,) = check_job(write_job(tmp_path, JOB.replace("entry: train.py", "entry: tr\x1b[31main.py"))).diagnostics
    assert found.span is not None
    assert (found.span.line, found.span.column) == (7, 12)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('version: "2.0.1"', 'version: "\u0662.\u0660.\u0661"'),
        ("iam::123456789012", "iam::12345678901\u0662"),
        ("us-east-1\n", "us-east-\u0661\n"),
    ],
)
def test_only_ascii_digits_are_digits(tmp_path: Path, before: str, after: str) -> None:
    assert "SMDP204" in [code for code, _, _ in reported(tmp_path, JOB.replace(before, after))]


@pytest.mark.parametrize("section", ['tags: {"a": "b\\nc"}', 'tags: {"a\\tb": "c"}'])
def test_tags_are_one_line(tmp_path: Path, section: str) -> None:
    assert [code for code, _, _ in reported(tmp_path, f"{JOB}{section}\n")] == ["SMDP204"]
