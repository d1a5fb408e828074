"""YAML 1.2 in job files: scalars, tabs, and common errors that are reported at their own line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.jobfile.load import load
from smdp_launch.jobfile.yaml.common_errors import find
from smdp_launch.jobfile.yaml.document import ConfigSource, Document
from smdp_launch.jobfile.yaml.parser import parse
from tests.conftest import JOB

TEXTS = """2024_01_15 0b11 1_000 1__0 1_0.5 0X1F 0O17 -0x1F 0x 1:30 190:20:30 2024-01-15 2024-01-15T01:02:03Z
yes no on off y n tRUE nULL 1.2.3 1e -.nan = . ..."""
NUMBERS = {
    **{"0x1F": 31, "0o17": 15, "+1": 1, "-1": -1, "012": 12, "-012": -12, "00": 0, "08": 8},
    **{".5": 0.5, "5.": 5.0, "1e3": 1000.0, "1E+3": 1000.0, "-.5e-3": -0.0005, "12e03": 12000.0, "-2E+05": -200000.0},
}
WORDS = {"~": None, "null": None, "Null": None, "NULL": None, "": None, "True": True, "TRUE": True, "false": False}


def parsed(text: str, source: ConfigSource = ConfigSource.JOB_FILE) -> tuple[Document, list[Diagnostic]]:
    return parse(text, Document("job.yaml", Path(), source))


def only(found: list[Diagnostic]) -> Diagnostic:
    assert len(found) == 1, found
    return found[0]


def lines(found: list[Diagnostic]) -> list[tuple[str, int]]:
    return [(one.code, one.span.line if one.span is not None else 0) for one in found]


def fixed(text: str, found: list[Diagnostic]) -> str:
    """``text`` with the edits of all diagnostics, the last first."""
    rows = text.splitlines(keepends=True)
    edits = {(edit.line, edit.column, edit.end_column, edit.text) for one in found for edit in one.edits}
    for line, column, end, new in sorted(edits, reverse=True):
        rows[line - 1] = rows[line - 1][: column - 1] + new + rows[line - 1][end - 1 :]
    return "".join(rows)


@pytest.mark.parametrize("written", TEXTS.split())
def test_scalar_outside_the_core_schema_is_text(written: str) -> None:
    document, found = parsed(f"script: {{hyperparameters: {{value: {written}}}}}\nlist:\n- {written}\n")
    assert found == []
    assert document.data == {"script": {"hyperparameters": {"value": written}}, "list": [written]}


@pytest.mark.parametrize(("written", "value"), [*NUMBERS.items(), *WORDS.items()])
def test_scalar_of_the_core_schema_has_its_type(written: str, value: object) -> None:
    document, found = parsed(f"value: {written}\n")
    assert found == []
    assert document.data == {"value": value}
    assert type(document.data["value"]) is type(value)


@pytest.mark.parametrize("written", ['"1"', "'true'", '"null"', "!!str 1"])
def test_a_value_in_quotes_or_with_its_tag_is_text(written: str) -> None:
    assert isinstance(parsed(f"value: {written}\n")[0].data["value"], str)


@pytest.mark.parametrize("written", ["!!int abc", "!!int 0b11", "!!bool yes", "!!float x", "!!null 1"])
def test_a_tag_that_does_not_fit_is_an_error(written: str) -> None:
    one = only(parsed(f"value: {written}\n")[1])
    assert (one.code, one.help) == ("SMDP102", "remove the tag")


def test_value_of_a_variable_is_read_as_yaml() -> None:
    document, found = parse("a: ${A}\nb: ${B}\n", Document("job.yaml", Path()), {"A": "1_000", "B": "0x10"})
    assert found == []
    assert document.data == {"a": "1_000", "b": 16}


@pytest.mark.parametrize("written", ["86_400", "8_6_4_0_0"])
def test_underscores_in_a_number_field_are_removed_by_the_edit(written: str) -> None:
    text = JOB.replace("max_run: 600", f"max_run: {written}")
    document, _ = parsed(text)
    one = only(load(document)[1])
    assert (one.code, one.text) == ("SMDP203", written)
    result, found = load(parsed(fixed(text, [one]))[0])
    assert found == []
    assert result.spec is not None
    assert result.spec.compute.max_run == 86400


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("a:\tvalue\nb: 1\n", {"a": "value", "b": 1}),
        ("a:\t\t'value'\n", {"a": "value"}),
        ("a: \tvalue\n", {"a": "value"}),
        ("a\t: value\n", {"a": "value"}),
        ("a: one\ttwo\n", {"a": "one\ttwo"}),
        ("a: value\t\nb: 1\n", {"a": "value", "b": 1}),
        ("a: value\t# why\nb: 1\n", {"a": "value", "b": 1}),
        ("a: 1\n\t\nb: 2\n", {"a": 1, "b": 2}),
        ("a: 1\n\t# why\nb: 2\n", {"a": 1, "b": 2}),
        ("a:\t# why\n  b: 1\n", {"a": {"b": 1}}),
        ("a: {b:\t1,\tc: 2}\n", {"a": {"b": 1, "c": 2}}),
        ("a: |\n  one\ttwo\n", {"a": "one\ttwo\n"}),
        ('a: "one\ttwo"\n', {"a": "one\ttwo"}),
    ],
)
def test_tab_outside_indentation_is_a_space(text: str, data: object) -> None:
    document, found = parsed(text)
    assert found == []
    assert document.data == data


@pytest.mark.parametrize(("text", "line"), [("a:\n\tb: 1\n", 2), ("a:\n- b\n\t- c\n", 3), ("a:\n  b: 1\n \tc: 2\n", 3)])
def test_a_tab_that_indents_is_an_error(text: str, line: int) -> None:
    one = only(parsed(text)[1])
    assert lines([one]) == [("SMDP102", line)]
    assert one.help == "a tab cannot indent YAML: use spaces"


MISSING = {
    "at the top": ("schema:1\nname: x\n", [1]),
    "in the middle": ("schema: 1\nname:mnist\nframework: {name: x}\n", [2]),
    "at the end": ("schema: 1\nname:mnist\n", [2]),
    "before a comment": ("schema: 1\nname:mnist # mine\n\n# more\nframework: 2\n", [2]),
    "first of a section": ("a:\n  lr:0.1\n  epochs: 3\nb: 1\n", [2]),
    "last of a section": ("a:\n  lr: 0.1\n  epochs:3\nb: 1\n", [3]),
    "in a list": ("a:\n  - b:c\n    d: e\n", [2]),
    "a quoted key": ('a: 1\n"b":2\nc: 3\n', [2]),
    "before a location": ("a: 1\ns3:s3://bucket/x\nb: 2\n", [2]),
    "twice in a row": ("schema: 1\nname:x\nimage:y\nregion: z\n", [2, 3]),
    "twice apart": ("schema: 1\nname:x\nregion: z\nimage:y\nrole: r\n", [2, 4]),
    "everywhere": ("schema:1\nname:x\n", [1, 2]),
    "in one line": ("a: {entry:train.py, source: x}\n", [1]),
}


@pytest.mark.parametrize("case", MISSING)
def test_missing_space_is_reported_at_its_line_with_an_edit(case: str) -> None:
    text, at = MISSING[case]
    _, found = parsed(text)
    assert lines(found) == [("SMDP108", line) for line in at]
    assert parsed(fixed(text, found))[1] == []


def test_key_without_space_in_braces_hides_no_other_error(tmp_path: Path) -> None:
    document, found = parsed(JOB.replace("{epochs: 2}", "{epochs:2}").replace("name: pytorch", "name:pytorch"))
    result, more = load(document)
    assert [one.code for one in found] == ["SMDP108", "SMDP108"]
    assert more == []
    assert result.spec is not None
    assert result.spec.script.hyperparameters == {"epochs": 2}


@pytest.mark.parametrize(
    ("section", "editable"), [("  s3:s3://b-1/x\n", True), ("  s3:s3://b-1/x\n  path:/y\n", False)]
)
def test_section_that_yaml_reads_as_text_is_reported(section: str, editable: bool) -> None:
    document, found = parsed(f"{JOB}checkpoint:\n{section}")
    assert found == []
    one = only(load(document)[1])
    assert (one.code, bool(one.edits)) == ("SMDP108", editable)


@pytest.mark.parametrize(
    "value",
    ["alpine:latest", "a:b", "arn:aws:iam::1:role/x", "s3://b/x", "k:v,k2:v2", "[a:b, c:d]", "10:30", "C:/d"],
)
def test_text_with_a_colon_is_valid(value: str) -> None:
    document, found = parsed(f"a: {value}\nb: 1\nc:\n- {value}\n")
    assert found == []
    assert document.data["b"] == 1


def test_other_error_is_not_reported_as_missing_space() -> None:
    one = only(parsed("image: repo:tag\nlist:\n  - a:b\npurpose: trial: second\n")[1])
    assert (one.code, one.help) == ("SMDP102", 'text that contains ": " needs quotes')


def test_a_value_of_a_flag_has_no_edit() -> None:
    _, found = parsed("{a:1}", ConfigSource.FLAG)
    assert [(one.code, one.edits) for one in found] == [("SMDP108", ())]


def test_search_for_missing_spaces_parses_a_limited_amount() -> None:
    parsed_lengths: list[int] = []

    def fails_at(text: str) -> int | None:
        parsed_lengths.append(len(text))
        return text.count("b: 2")

    text = "b:2\n" * 4_000 + "c: 3\n"
    found = find("job.yaml", text, 0, fails_at)
    assert [one.code for one in found[:2]] == ["SMDP108", "SMDP108"]
    assert 0 < sum(parsed_lengths) < 100_000


CONFLICTS = {
    "two sides": ("a: 1\n<<<<<<< HEAD\nb: 2\n=======\nb: 3\n>>>>>>> other\nc: 4\n", [2, 4, 6]),
    "at the top": ("<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> other\n", [1, 3, 5]),
    "in a section": ("a:\n  c: 1\n<<<<<<< HEAD\n  b: 2\n=======\n  b: 3\n>>>>>>> other\nd: 4\n", [3, 5, 7]),
    "in a list": ("a:\n- x\n<<<<<<< HEAD\n- y\n=======\n- z\n>>>>>>> other\n", [3, 5, 7]),
    "with the ancestor": ("<<<<<<< HEAD\nb: 2\n||||||| 1a2b3c4\nb: 1\n=======\nb: 3\n>>>>>>> other\n", [1, 3, 5, 7]),
    "one left over": ("a: 1\n>>>>>>> other\n", [2]),
    "the middle left over": ("a: 1\n=======\nb: 1\n", [2]),
    "with windows' line ends": ("a: 1\r\n=======\r\nb: 1\r\n", [2]),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_merge_markers_are_one_error_with_all_lines(case: str) -> None:
    text, at = CONFLICTS[case]
    one = only(parsed(text)[1])
    assert one.code == "SMDP109"
    assert one.span is not None
    assert [place.line for place in (one.span, *one.also)] == at
    assert one.edits == ()


def test_conflict_marker_in_a_value_is_valid() -> None:
    document, found = parsed("a: |\n  <<<<<<< HEAD\n  =======\nb: '======='\n")
    assert found == []
    assert document.data["b"] == "======="


def test_secret_in_a_line_without_space_is_hidden(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"{JOB}environment:\n  DB_PASSWORD:hunter2-and-more\n  OTHER: x\n")
    found = check_job(path).diagnostics
    assert [one.code for one in found] == ["SMDP108"]
    assert not re.search("hunter2", str(found))
