"""An edit changes one entry of a YAML file as it was asked to, and every other character stays."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smdp_launch.diagnostics import Edit
from smdp_launch.edits import apply_edits
from smdp_launch.jobfile.yaml.document import Document, parse
from smdp_launch.jobfile.yaml.text import written
from smdp_launch.jobfile.yaml_fixes import with_edits
from tests.support.properties import examples

Location = tuple[str | int, ...]


def document_of(text: str) -> Document:
    found, problems = parse(text, Document("job.yaml", Path()))
    assert problems == []
    return found


def made(text: str, edits: tuple[Edit, ...]) -> str | None:
    return apply_edits(text, edits) if edits else None


# -- one by one ------------------------------------------------------------------------------------------------------

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
def test_a_value_is_replaced_where_it_begins_and_ends(text: str, expected: str | None) -> None:
    assert made(text, document_of(text).replacing(("a",), "2")) == expected


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
def test_text_keeps_its_quotes_or_gets_those_that_it_needs(text: str, new: str, expected: str) -> None:
    assert made(text, document_of(text).replacing(("a",), new)) == expected


RENAMED = {
    "a: 1\n": "z: 1\n",
    '"a": 1\n': '"z": 1\n',
    "{'a': 1}": "{'z': 1}",
    "a: &x 1\nb: *x\n": "z: &x 1\nb: *x\n",
    "a: 1\nz: 2\n": None,
    "a: ${NAME}\n": "z: ${NAME}\n",
}


@pytest.mark.parametrize(("text", "expected"), RENAMED.items())
def test_a_key_is_renamed_unless_the_new_one_is_there(text: str, expected: str | None) -> None:
    assert made(text, document_of(text).replacing(("a",), "z", on_key=True)) == expected


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
def test_an_entry_goes_with_its_lines_or_its_comma(text: str, expected: str | None) -> None:
    assert made(text, document_of(text).removing(("a",))) == expected


ITEMS = {
    "a: [1, 2, 3]\n": "a: [1, 3]\n",
    "a: [1, 2]\n": "a: [1]\n",
    "a:\n- 1\n- 2  # why\n- 3\n": "a:\n- 1\n- 3\n",
    "a:\n  - 1\n  -   b: 2\n      c: 3\n": "a:\n  - 1\n",
    "a:\n- 1\n-\n  2\n": None,
}


@pytest.mark.parametrize(("text", "expected"), ITEMS.items())
def test_an_item_goes_with_its_dash_or_its_comma(text: str, expected: str | None) -> None:
    assert made(text, document_of(text).removing(("a", 1))) == expected


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
def test_what_would_be_left_empty_goes_as_well(text: str, location: Location, expected: str | None) -> None:
    assert made(text, document_of(text).removing(location)) == expected


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
def test_a_new_entry_comes_where_it_is_usually_written(text: str, location: Location, expected: str | None) -> None:
    assert made(text, document_of(text).writing(location, "9", ORDER)) == expected


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
    new = made(text, document_of(text).writing(("a",), "{s3: x, no: [1.0e-05, true, null]}", ORDER))
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
    text = made('{"a": 1}', document_of('{"a": 1}').writing(("b",), new))
    if value is None and new != "~":
        assert text is None
    else:
        assert text is not None
        assert json.loads(text) == {"a": 1, "b": value}
        assert "\\u" not in text


def test_a_sign_of_a_comment_within_json_text_is_none() -> None:
    assert made('{"a": {"b": "c #d"}}', document_of('{"a": {"b": "c #d"}}').replacing(("a",), "2")) == '{"a": 2}'


@pytest.mark.parametrize("before", ["", " ", "\n", "\n  "])
@pytest.mark.parametrize("behind", ["", " ", "\n"])
@pytest.mark.parametrize("gone", ["a", "b", "c"])
def test_json_without_an_entry_has_no_comma_too_many(before: str, behind: str, gone: str) -> None:
    text = "{" + f"{behind},".join(f'{before}"{one}": 1' for one in "abc") + "\n}"
    new = made(text, document_of(text).removing((gone,)))
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
def test_text_that_is_no_yaml_is_fixed_where_that_is_certain(text: str, expected: str | None) -> None:
    _, (problem,) = with_edits(parse(text, Document("job.yaml", Path())), {})
    assert made(text, problem.edits) == expected


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
def test_what_the_reader_refuses_is_fixed_where_that_is_certain(text: str, expected: str | None) -> None:
    _, problems = parse(text, Document("job.yaml", Path()))
    assert made(text, problems[0].edits) == expected


# -- any file --------------------------------------------------------------------------------------------------------


@dataclass
class Styled:
    """Data written as YAML in some style.

    Args:
        comments: each is there once, with the entry that it is about; those above an entry are the mapping's.
    """

    data: Any
    text: str = ""
    comments: dict[str, Location] = field(default_factory=dict)


KEYS = st.sampled_from(["a", "b", "key", "größe", "x-1"])
SCALARS = st.sampled_from([1, 2.5, True, None, "text", "a: b", "#x", "it's", "ä😀", "1.0", "", "a, b", "$${A}", "- x"])
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(KEYS, inner, min_size=1, max_size=3),
)


class _Writer:
    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.comments: dict[str, Location] = {}

    def comment(self, at: Location) -> str:
        """Nothing, or a comment about the entry at ``at``."""
        if not self.draw(st.booleans()):
            return ""
        name = f"# c{len(self.comments)}."
        self.comments[name] = at
        return name

    def block(self, value: Any, at: Location, indent: str) -> list[str]:
        items = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        lines = []
        for key, one in items:
            here = (*at, key)
            above = self.comment(at)
            lines += [indent + above] if above else []
            head = f"{indent}{self.scalar(key)}:" if isinstance(value, dict) else f"{indent}-"
            if isinstance(one, dict | list) and isinstance(value, dict) and self.draw(st.booleans()):
                lines += [f"{head}  {self.comment(here)}".rstrip(), *self.block(one, here, f"{indent}  ")]
            else:
                lines += self.inline(head, one, here, indent)
        return lines

    def inline(self, head: str, value: Any, at: Location, indent: str) -> list[str]:
        if isinstance(value, str) and "\n" not in value and value.isalpha() and self.draw(st.booleans()):
            return [f"{head} >-", f"{indent}    {value}"]
        *lines, last = self.flow(value, at, f"{indent}    ").split("\n")
        comment = self.comment(at)
        return f"{head} {chr(10).join([*lines, last])}{f'  {comment}' if comment else ''}".split("\n")

    def flow(self, value: Any, at: Location, indent: str) -> str:
        if not isinstance(value, dict | list):
            return self.scalar(value)
        is_mapping = isinstance(value, dict)
        items = list(value.items()) if is_mapping else list(enumerate(value))
        parts = [
            f"{self.scalar(key)}: {self.flow(one, (*at, key), f'{indent}  ')}"
            if is_mapping
            else self.flow(one, (*at, key), f"{indent}  ")
            for key, one in items
        ]
        first, last = "{}" if is_mapping else "[]"
        if not self.draw(st.booleans()):
            return f"{first}{', '.join(parts)}{self.draw(st.sampled_from(['', ',', ' ']))}{last}"
        lines = [first]
        for (key, _), part in zip(items, parts, strict=True):
            comment = self.comment((*at, key))
            lines.append(f"{indent}{part},{f'  {comment}' if comment else ''}")
        return "\n".join([*lines, f"{indent}{last}"])

    def scalar(self, value: Any) -> str:
        if not isinstance(value, str):
            return written(value)
        plain = written(value).replace("$${", "${") if "${" in value else written(value)
        plain = plain.replace("$$${", "$${")
        styles = [plain, "'" + value.replace("'", "''") + "'"]
        return str(self.draw(st.sampled_from(styles)))


@st.composite
def styled(draw: st.DrawFn) -> Styled:
    data = draw(st.dictionaries(KEYS, DATA, min_size=1, max_size=4))
    writer = _Writer(draw)
    lines = writer.block(data, (), "") if draw(st.integers(0, 4)) else writer.flow(data, (), "  ").split("\n")
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    text = newline.join([*lines, *([""] if draw(st.booleans()) else [])])
    return Styled(data, text, writer.comments)


def locations(value: Any, at: Location = ()) -> list[Location]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [where for key, one in items for where in ((*at, key), *locations(one, (*at, key)))]


def at_place(data: Any, location: Location) -> Any:
    for part in location:
        data = data[part]
    return data


def with_value(data: Any, location: Location, value: Any) -> Any:
    changed = copy.deepcopy(data)
    at_place(changed, location[:-1])[location[-1]] = value
    return changed


def without(data: Any, location: Location) -> Any:
    changed = copy.deepcopy(data)
    del at_place(changed, location[:-1])[location[-1]]
    return changed


def data_of(text: str) -> Any:
    return document_of(text).data


#: Of what the text stands for; "$${" is read as text when no variables are given.
NEW = [("2", 2), ('"1.0"', "1.0"), ("word", "word"), ('"a: b"', "a: b"), ("{k: [1]}", {"k": [1]})]


@examples(300)
@given(styled(), st.data())
@example(Styled({"a": 1}, "a: 1\n"), None)
def test_any_value_in_any_style_is_replaced_and_nothing_else(job: Styled, data: st.DataObject | None) -> None:
    document = document_of(job.text)
    for location in locations(job.data):
        new, value = data.draw(st.sampled_from(NEW)) if data is not None else NEW[0]
        text = made(job.text, document.replacing(location, new))
        if text is not None:
            assert data_of(text) == with_value(job.data, location, value)
            assert all(one in text for one in job.comments)
        else:  # a comment within the value, or nothing to replace
            assert not isinstance(at_place(job.data, location), int)


@examples(300)
@given(styled())
def test_any_entry_in_any_style_is_removed_and_nothing_else(job: Styled) -> None:
    document = document_of(job.text)
    for location in locations(job.data):
        gone = location
        while len(gone) > 1 and len(at_place(job.data, gone[:-1])) == 1:
            gone = gone[:-1]
        text = made(job.text, document.removing(location))
        if text is None:
            assert len(at_place(job.data, gone[:-1])) == 1 or "- " in job.text
            continue
        assert data_of(text) == without(job.data, gone)
        assert all(one in text for one, owner in job.comments.items() if owner[: len(gone)] != gone)


@examples(300)
@given(styled(), st.booleans())
def test_any_mapping_in_any_style_gets_an_entry_and_nothing_else(job: Styled, first: bool) -> None:
    document = document_of(job.text)
    for location in [(), *locations(job.data)]:
        mapping = at_place(job.data, location)
        if isinstance(mapping, dict):
            order = ["new", *mapping] if first else []
            text = made(job.text, document.writing((*location, "new"), "{k: [1]}", order))
            assert text is not None
            assert data_of(text) == with_value(job.data, (*location, "new"), {"k": [1]})
            assert all(one in text for one in job.comments)


@examples(200)
@given(styled())
def test_any_key_in_any_style_is_renamed_and_nothing_else(job: Styled) -> None:
    document = document_of(job.text)
    for location in locations(job.data):
        if isinstance(location[-1], str):
            text = made(job.text, document.replacing(location, "renamed", on_key=True))
            assert text is not None
            expected = with_value(
                without(job.data, location), (*location[:-1], "renamed"), at_place(job.data, location)
            )
            assert data_of(text) == expected
