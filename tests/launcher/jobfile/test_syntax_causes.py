"""A syntax error is reported at its cause: a key without a colon, an opening quote or brace, a wrong indentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.diagnostics import Diagnostic
from smdp_launch.edits import apply_edits
from smdp_launch.jobfile.syntax_fixes import add_edits
from smdp_launch.jobfile.yaml.document import Document
from smdp_launch.jobfile.yaml.parser import parse
from smdp_launch.planning.fix import fix_job
from tests.conftest import JOB, write_job
from tests.support.job_files.good_files import FILES

#: The sound job with every section in lines of its own.
TEXT = """\
schema: 1
name: small
engine: native
framework:
  name: pytorch
  version: "2.0.1"
script:
  entry: train.py
  source: src
  hyperparameters:
    epochs: 90
compute:
  instance_type: ml.p4d.24xlarge
  instance_count: 2
  max_run: 600
channels:
  train: {s3: "s3://bucket/train"}
output:
  s3: "s3://bucket/output"
role: arn:aws:iam::123456789012:role/training
region: us-east-1
"""

#: One of this many lines of each sound file is tested.
SAMPLE = 9

NO_COLON = {
    "at the top": ("engine: native", "engine native", ["3:7 engine"], "write engine: native"),
    "with an equals sign": ("engine: native", "engine = native", ["3:7 engine"], "write engine: native"),
    "before a comment": ("engine: native", "engine native  # ours", ["3:7 engine"], "write engine: native"),
    "of the first line": ("schema: 1", "schema 1", ["1:7 schema"], "write schema: 1"),
    "of the last line": ("region: us-east-1", "region us-east-1", ["21:7 region"], "write region: us-east-1"),
    "before a section": ("compute:", "compute", ["12:8 compute"], "write compute:"),
    "first of a section": ("  entry: ", "  entry ", ["8:8 entry"], "write entry: train.py"),
    "before a quote": ('version: "', 'version "', ["6:10 version"], 'write version: "2.0.1"'),
    "twice": ("  entry: train.py\n  source: ", "  entry train.py\n  source ", ["8:8 entry", "9:9 source"], None),
}


def found_in(text: str) -> list[Diagnostic]:
    return add_edits(parse(text, Document("job.yaml", Path())), {})[1]


def places(found: list[Diagnostic]) -> list[str]:
    return [f"{one.span.line}:{one.span.column}" for one in found if one.span is not None]


@pytest.mark.parametrize("case", NO_COLON)
def test_key_without_colon_is_reported_at_its_end_with_an_edit(case: str) -> None:
    before, after, expected, help_ = NO_COLON[case]
    found = found_in(TEXT.replace(before, after, 1))
    messages = [f"{place} {one.message}" for place, one in zip(places(found), found, strict=True)]
    assert messages == [one.replace(" ", " there is no colon after ") for one in expected]
    assert help_ is None or found[0].help == help_
    fixed = apply_edits(TEXT.replace(before, after, 1), [edit for one in found for edit in one.edits])
    assert fixed.replace("  # ours", "") == TEXT


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [("engine: native", "enginee native", "enginee"), ("    epochs: 90", "    lr: 1\n    epochs 90", "epochs")],
)
def test_key_that_the_section_does_not_know_gets_no_colon(before: str, after: str, key: str) -> None:
    (one,) = found_in(TEXT.replace(before, after))
    assert (one.message, one.edits) == (f"there is no colon after {key}", ())


def test_secret_after_a_key_without_colon_is_not_shown(tmp_path: Path) -> None:
    path = write_job(tmp_path, f"{JOB}environment:\n  A: x\n  DB_PASSWORD hunter2-and-more\nsilence: []\n")
    (one,) = check_job(path, environ={}).diagnostics
    assert (one.message, one.edits) == ("there is no colon after DB_PASSWORD", ())
    assert "hunter2" not in str(one)
    assert fix_job(path, environ={}).files == ()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_missing_colon_anywhere_is_reported_in_its_line_and_its_edit_restores_the_file(file: Path) -> None:
    lines = file.read_text().splitlines(keepends=True)
    for index in [at for at, line in enumerate(lines) if re.match(r" *[\w.-]+:", line) is not None][::SAMPLE]:
        line = lines[index]
        made = "".join([*lines[:index], line.replace(":", "", 1), *lines[index + 1 :]])
        found = found_in(made)
        if found and found[0].message.startswith("there is no colon"):
            assert places(found)[0].split(":")[0] == str(index + 1), made
            assert apply_edits(made, found[0].edits) in {made, file.read_text()}


INDENTED = {
    "one space more": (
        "  instance_count",
        "   instance_count",
        "14:4",
        "indented by 3 spaces, and the keys beside it by 2",
    ),
    "one space less": (
        "  instance_count",
        " instance_count",
        "14:2",
        "indented by 1 space, and the keys beside it by 2",
    ),
    "the first one": (
        "  instance_type",
        "   instance_type",
        "13:4",
        "indented by 3 spaces, and the keys beside it by 2",
    ),
    "at the top": ("engine", " engine", "3:2", "indented by 1 space, and the keys beside it are not"),
    "a section": ("output:", " output:", "18:2", "indented by 1 space, and line 17 above it by 2"),
    "one of two": ("  instance_count", "instance_count", "15:3", "indented by 2 spaces, and line 14 above it is not"),
}


@pytest.mark.parametrize("case", INDENTED)
def test_wrong_indentation_is_reported_at_its_line(case: str) -> None:
    before, after, place, message = INDENTED[case]
    found = found_in(TEXT.replace(before, after))
    assert places(found) == [place]
    assert found[0].message == f"line {place.split(':')[0]} is {message}"


OPEN = {
    "a quote": ('"2.0.1"', '"2.0.1', "6:12", "quote", 'add " at the end of the text'),
    "a quote before others": ('{s3: "s3://bucket/train"}', '{s3: "s3://bucket/train}', "17:15", "quote", 'add " at'),
    "a single quote": ('"2.0.1"', "'2.0.1", "6:12", "quote", "add ' at the end of the text"),
    "a quote of the last line": ("us-east-1", '"us-east-1', "21:9", "quote", 'add " at the end of the text'),
    "a second quote": ("region: us-east-1\n", 'region: "us-east-1""\n', "21:20", "quote", "remove it"),
    "a brace": ('train"}', 'train"', "17:10", "{", "add } after its last entry"),
    "a bracket": ("engine: native", "silence: [SMDP313", "3:10", "[", "add ] after its last entry"),
    "a bracket in braces": ("engine: native", "tags: {a: [b, c}", "3:11", "[", "add ] after its last entry"),
    "a brace on two lines": ("engine: native", "tags: {a: b,\n  c: d", "3:7", "{", "add } after its last entry"),
    "a bracket of the last line": ("us-east-1\n", "[x", "21:9", "[", "add ] after its last entry"),
}


@pytest.mark.parametrize("case", OPEN)
def test_what_is_not_closed_is_reported_where_it_opens(case: str) -> None:
    before, after, place, what, help_ = OPEN[case]
    found = found_in(TEXT.replace(before, after))
    assert [one.message for one in found] == [f"this {what} is not closed"]
    assert places(found) == [place]
    assert found[0].help.startswith(help_)


@pytest.mark.parametrize(
    ("line", "place"),
    [("tags: {a: b}}", "3:13"), ('tags: {a: "b"c}', "3:14"), ("tags: {a: b, c: d e: f}", "3:20")],
)
def test_what_is_closed_is_not_reported_as_open(line: str, place: str) -> None:
    found = found_in(TEXT.replace("engine: native", line))
    assert places(found) == [place]
    assert found[0].message.startswith("not valid YAML")


@pytest.mark.parametrize(
    ("line", "help_"),
    [("  purpose: a: b", 'text that contains ": " needs quotes'), ("\t- x: y", "a tab cannot indent YAML: use spaces")],
)
def test_help_about_quotes_needs_a_second_colon_in_the_line(line: str, help_: str) -> None:
    (one,) = found_in(f"{TEXT}tags:\n{line}\n")
    assert one.help == help_


def test_search_for_causes_in_a_long_file_ends(tmp_path: Path) -> None:
    text = f"{JOB}tags:\n" + "".join(f"  k{number}: '{'x' * 30}\n" for number in range(4000))
    (one,) = parse(text, Document("job.yaml", Path()))[1]
    assert one.code == "SMDP102"
