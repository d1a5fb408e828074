"""An edit changes one entry of a YAML file, and every other character stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.jobfile.syntax_fixes import add_edits
from smdp_launch.jobfile.yaml.document import Document
from smdp_launch.jobfile.yaml.parser import parse
from tests.support.job_files.edits import Location, document_of, edited

REPLACED = {
    "a: 1\n": "a: 2\n",
    "a:   1   # why\nb: 3\n": "a:   2   # why\nb: 3\n",
    "{a: 1, b: 3}": "{a: 2, b: 3}",
    "a: >-\n  folded\n  text\n\nb: 3\n": "a: 2\n\nb: 3\n",
    "a: |  # why\n  text\n": None,
    "a:\n  b: 1\n  c: 3\n\n# about d\nd: 4\n": "a: 2\n\n# about d\nd: 4\n",
    "a:\n  b: 1\n  c: 3  # why\nd: 4\n": "a: 2  # why\nd: 4\n",
    "a:  # why\n  b: 1\nd: 4\n": None,
    "a: {\n  b: 1,  # why\n}\nd: 4\n": None,
    "a:\n- 1\n- 2\nd: 4\n": "a: 2\nd: 4\n",
    "a: [1,\n  2]\nd: 4\n": "a: 2\nd: 4\n",
    'a: "long\n  text"\nd: 4\n': "a: 2\nd: 4\n",
    "a: long\n  text\nd: 4\n": "a: 2\nd: 4\n",
    "a: &x 1\nb: *x\n": None,
    "b: &x 1\na: *x\n": None,
    "a: ${NAME}\n": None,
    "a: $${NAME}\n": "a: 2\n",
    "a:\nb: 3\n": None,
    "a: !!str 1\n": "a: 2\n",
    "'ä😀': 5\na: 1": "'ä😀': 5\na: 2",
    "a: 1\r\nb: 3\r\n": "a: 2\r\nb: 3\r\n",
}


@pytest.mark.parametrize(("text", "expected"), REPLACED.items())
def test_only_the_value_is_replaced(text: str, expected: str | None) -> None:
    assert edited(text, document_of(text).replacing(("a",), "2")) == expected


@pytest.mark.parametrize(
    ("text", "new", "expected"),
    [
        ("a: x\n", "y", "a: y\n"),
        ("a: 'x'\n", "y", "a: 'y'\n"),
        ('a: "x"\n', "y", 'a: "y"\n'),
        ("a: 'x'\n", '"its"', "a: 'its'\n"),
        ("a: 'x'\n", '"it\'s"', "a: 'it''s'\n"),
        ("a: x\n", '"1.0"', 'a: "1.0"\n'),
        ("a: x\n", '"a: b"', 'a: "a: b"\n'),
        ("a: x\n", '"a, b"', "a: a, b\n"),
        ("{a: x}\n", '"a, b"', '{a: "a, b"}\n'),
        ("{a: x}\n", "s3://${B}/x", '{a: "s3://${B}/x"}\n'),
        ("a: 2.10\n", '"2.10"', 'a: "2.10"\n'),
        ("a: 'x'\n", "3", "a: 3\n"),
        ("a: 'x'\n", "{b: 1}", "a: {b: 1}\n"),
    ],
)
def test_text_keeps_its_quotes_or_gets_required_ones(text: str, new: str, expected: str) -> None:
    assert edited(text, document_of(text).replacing(("a",), new)) == expected


RENAMED = {
    "a: 1\n": "z: 1\n",
    '"a": 1\n': '"z": 1\n',
    "{'a': 1}": "{'z': 1}",
    "a: &x 1\nb: *x\n": "z: &x 1\nb: *x\n",
    "a: 1\nz: 2\n": None,
    "a: ${NAME}\n": "z: ${NAME}\n",
}


@pytest.mark.parametrize(("text", "expected"), RENAMED.items())
def test_key_is_renamed_unless_the_new_one_exists(text: str, expected: str | None) -> None:
    assert edited(text, document_of(text).replacing(("a",), "z", on_key=True)) == expected


REMOVED = {
    "a: 1\nb: 2\n": "b: 2\n",
    "b: 2\na: 1\n": "b: 2\n",
    "b: 2\na: 1": "b: 2",
    "b: 2\na: 1  # why": "b: 2",
    "b: 2\r\na: 1\r\nc: 3": "b: 2\r\nc: 3",
    "# about a\na: 1  # why\n# about b\nb: 2\n": "# about a\n# about b\nb: 2\n",
    "a:\n  c: 1\n  # within\n  d: 2\n\n# about b\nb: 2\n": "\n# about b\nb: 2\n",
    "a: |\n  text\n\n  more\n\nb: 2\n": "\nb: 2\n",
    "a:\nb: 2\n": "b: 2\n",
    "{a: 1, b: 2}": "{b: 2}",
    "{b: 2, a: 1}": "{b: 2}",
    "{b: 2, a: 1,}": "{b: 2,}",
    "{\n  a: 1,  # why\n  b: 2,  # because\n}": "{\n  b: 2,  # because\n}",
    "{\n  b: 2,  # because\n  a: 1  # why\n}": "{\n  b: 2,  # because\n}",
    "{b: 2,\n a: 1}": "{b: 2,\n }",
    "a: &x 1\nb: *x\n": None,
    "b: &x 1\na: *x\n": None,
    "a: 1\n": None,
}


@pytest.mark.parametrize(("text", "expected"), REMOVED.items())
def test_entry_is_removed_with_its_lines_or_comma(text: str, expected: str | None) -> None:
    assert edited(text, document_of(text).removing(("a",))) == expected


ITEMS = {
    "a: [1, 2, 3]\n": "a: [1, 3]\n",
    "a: [1, 2]\n": "a: [1]\n",
    "a:\n- 1\n- 2  # why\n- 3\n": "a:\n- 1\n- 3\n",
    "a:\n  - 1\n  -   b: 2\n      c: 3\n": "a:\n  - 1\n",
    "a:\n- 1\n-\n  2\n": None,
}


@pytest.mark.parametrize(("text", "expected"), ITEMS.items())
def test_item_is_removed_with_its_dash_or_comma(text: str, expected: str | None) -> None:
    assert edited(text, document_of(text).removing(("a", 1))) == expected


@pytest.mark.parametrize(
    ("text", "location", "expected"),
    [
        ("a: {b: 1}\nc: 2\n", ("a", "b"), "c: 2\n"),
        ("a:\n  b: 1\nc: 2\n", ("a", "b"), "c: 2\n"),
        ("a: {b: [1]}\nc: 2\n", ("a", "b", 0), "c: 2\n"),
        ("a:\n- b: 1\n  d: 2\nc: 2\n", ("a", 0, "b"), "a:\n- d: 2\nc: 2\n"),
        ("a:\n- b: 1  # why\n  d: 2\nc: 2\n", ("a", 0, "b"), None),
    ],
)
def test_parent_that_becomes_empty_is_removed(text: str, location: Location, expected: str | None) -> None:
    assert edited(text, document_of(text).removing(location)) == expected


ORDER = ["first", "b", "a", "last"]


@pytest.mark.parametrize(
    ("text", "location", "expected"),
    [
        ("b: 1\nlast: 2\n", ("a",), "b: 1\na: 9\nlast: 2\n"),
        ("b: 1  # why\nlast: 2\n", ("a",), "b: 1  # why\na: 9\nlast: 2\n"),
        ("# head\nlast: 2\n", ("first",), "# head\nfirst: 9\nlast: 2\n"),
        ("last: 2", ("other",), "last: 2\nother: 9"),
        ("b: 1\r\n", ("a",), "b: 1\r\na: 9\r\n"),
        ("b: {x: 1}\n", ("b", "z"), "b: {x: 1, z: 9}\n"),
        ("b: {x: 1,}\n", ("b", "z"), "b: {x: 1, z: 9,}\n"),
        ("b: {\n  x: 1,  # why\n}\n", ("b", "z"), "b: {\n  x: 1, z: 9,  # why\n}\n"),
        ("b: {\n  x: 1,\n}\n", ("b", "z"), "b: {\n  x: 1,\n  z: 9,\n}\n"),
        ("b: {\n  last: 1\n}\n", ("b", "a"), "b: {\n  a: 9,\n  last: 1\n}\n"),
        ("b: {}\n", ("b", "z"), "b: {z: 9}\n"),
        ("b:\n    x: 1\n\nc: 2\n", ("b", "z"), "b:\n    x: 1\n    z: 9\n\nc: 2\n"),
        ("b:\nc: 2\n", ("b", "z"), "b: {z: 9}\nc: 2\n"),
        ("b:\n  x: |\n    text\n\nc: 2\n", ("b", "z"), "b:\n  x: |\n    text\n  z: 9\n\nc: 2\n"),
        ("c: 2\n", ("b", "z"), "b: {z: 9}\nc: 2\n"),
        ("c: 2\nb: &x {x: 1}\nd: *x\n", ("b", "z"), None),
        ("b: {x: 1}\n", ("b", "x"), "b: {x: 9}\n"),
        ("b: 1\n", ("b", "z"), None),
    ],
)
def test_new_entry_is_added_at_its_usual_place(text: str, location: Location, expected: str | None) -> None:
    assert edited(text, document_of(text).writing(location, "9", ORDER)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"b": 1}', '{"b": 1, "a": {"s3": "x", "no": [1.0e-05, true, null]}}'),
        ('{\n  "b": 1\n}\n', '{\n  "b": 1,\n  "a": {"s3": "x", "no": [1.0e-05, true, null]}\n}\n'),
        ('{\n  "last": 1\n}\n', '{\n  "a": {"s3": "x", "no": [1.0e-05, true, null]},\n  "last": 1\n}\n'),
        ('{"a": "x"}', '{"a": {"s3": "x", "no": [1.0e-05, true, null]}}'),
    ],
)
def test_a_file_in_json_stays_json(text: str, expected: str) -> None:
    new = edited(text, document_of(text).writing(("a",), "{s3: x, no: [1.0e-05, true, null]}", ORDER))
    assert new == expected
    assert json.loads(expected)["a"]["no"] == [1e-05, True, None]


@pytest.mark.parametrize(
    ("new", "value"),
    [
        ("0x2", 2),
        ("0o17", 15),
        ("012", 12),
        ("+5", 5),
        (".5", 0.5),
        ("1.", 1.0),
        ("~", None),
        ("True", True),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("[on, {y: no}]", ["on", {"y": "no"}]),
        ("é 😀", "é 😀"),
        ('"\\ud800"', None),
        (".inf", None),
        ("&x [*y]", None),
    ],
)
def test_json_gets_the_value_that_yaml_reads(new: str, value: object) -> None:
    text = edited('{"a": 1}', document_of('{"a": 1}').writing(("b",), new))
    if value is None and new != "~":
        assert text is None
    else:
        assert text is not None
        assert json.loads(text) == {"a": 1, "b": value}
        assert "\\u" not in text


def test_comment_sign_in_json_text_is_not_a_comment() -> None:
    assert edited('{"a": {"b": "c #d"}}', document_of('{"a": {"b": "c #d"}}').replacing(("a",), "2")) == '{"a": 2}'


@pytest.mark.parametrize("before", ["", " ", "\n", "\n  "])
@pytest.mark.parametrize("behind", ["", " ", "\n"])
@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_json_has_no_extra_comma_after_removal(before: str, behind: str, gone: str) -> None:
    text = "{" + f"{behind},".join(f'{before}"{one}": 1' for one in "abc") + "\n}"
    new = edited(text, document_of(text).removing((gone,)))
    assert new is not None
    assert list(json.loads(new)) == [one for one in "abc" if one != gone]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("script:\n\tentry: a\n\thyperparameters:\n\t\td: 2\n", "script:\n  entry: a\n  hyperparameters:\n    d: 2\n"),
        ("tags:\n    y: x\nscript:\n\tentry: a\n", "tags:\n    y: x\nscript:\n    entry: a\n"),
        (
            "channels:\n  a:\n    s3: s3://bucket/a\n\tmode: File\n",
            "channels:\n  a:\n    s3: s3://bucket/a\n    mode: File\n",
        ),
        ("tags:\n  a: b: c  # why\n", "tags:\n  a: 'b: c'  # why\n"),
        ("environment:\n  a: it's: c\n", "environment:\n  a: 'it''s: c'\n"),
        ("output: s3: s3://bucket/a\n", None),
        ("tags:\n  a: b\u0007c\n", "tags:\n  a: bc\n"),
        ("a: 'open\n", None),
        ("a: b\n  c: d\n", None),
    ],
)
def test_invalid_yaml_is_fixed_if_the_fix_is_certain(text: str, expected: str | None) -> None:
    _, (problem,) = add_edits(parse(text, Document("job.yaml", Path())), {})
    assert edited(text, problem.edits) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 1\n", "a: 1\nb: 2\n"),
        ("{a: 1, a: 1}", "{a: 1}"),
        ("a: 1\na: 2\n", None),
        ("b: &x 1\na: *x\nb: &x 2\na: *x\n", None),
        ("1: x\n", '"1": x\n'),
        ("{1: x}", '{"1": x}'),
        ("a: !secret x\n", "a: x\n"),
    ],
)
def test_parser_error_is_fixed_if_the_fix_is_certain(text: str, expected: str | None) -> None:
    _, problems = parse(text, Document("job.yaml", Path()))
    assert edited(text, problems[0].edits) == expected
