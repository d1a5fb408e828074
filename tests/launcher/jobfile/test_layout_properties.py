"""An edit of generated YAML in any style changes one entry, and every other character stays."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from smdp_launch.jobfile.yaml.text import to_yaml
from tests.support.job_files.edits import Location, document_of, edited
from tests.support.properties import examples


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
            return to_yaml(value)
        plain = to_yaml(value).replace("$${", "${") if "${" in value else to_yaml(value)
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


@pytest.mark.runs
@examples(300)
@given(styled(), st.data())
@example(Styled({"a": 1}, "a: 1\n"), None)
def test_replacing_any_value_changes_nothing_else(job: Styled, data: st.DataObject | None) -> None:
    document = document_of(job.text)
    for location in locations(job.data):
        new, value = data.draw(st.sampled_from(NEW)) if data is not None else NEW[0]
        text = edited(job.text, document.replacing(location, new))
        if text is not None:
            assert data_of(text) == with_value(job.data, location, value)
            assert all(one in text for one in job.comments)
        else:  # a comment within the value, or nothing to replace
            assert not isinstance(at_place(job.data, location), int)


@examples(300)
@given(styled())
def test_removing_any_entry_changes_nothing_else(job: Styled) -> None:
    document = document_of(job.text)
    for location in locations(job.data):
        gone = location
        while len(gone) > 1 and len(at_place(job.data, gone[:-1])) == 1:
            gone = gone[:-1]
        text = edited(job.text, document.removing(location))
        if text is None:
            assert len(at_place(job.data, gone[:-1])) == 1 or "- " in job.text
            continue
        assert data_of(text) == without(job.data, gone)
        assert all(one in text for one, owner in job.comments.items() if owner[: len(gone)] != gone)


@examples(300)
@given(styled(), st.booleans())
def test_adding_an_entry_to_any_mapping_changes_nothing_else(job: Styled, first: bool) -> None:
    document = document_of(job.text)
    for location in [(), *locations(job.data)]:
        mapping = at_place(job.data, location)
        if isinstance(mapping, dict):
            order = ["new", *mapping] if first else []
            text = edited(job.text, document.writing((*location, "new"), "{k: [1]}", order))
            assert text is not None
            assert data_of(text) == with_value(job.data, (*location, "new"), {"k": [1]})
            assert all(one in text for one in job.comments)


@examples(200)
@given(styled())
def test_renaming_any_key_changes_nothing_else(job: Styled) -> None:
    document = document_of(job.text)
    for location in locations(job.data):
        if isinstance(location[-1], str):
            text = edited(job.text, document.replacing(location, "renamed", on_key=True))
            assert text is not None
            expected = with_value(
                without(job.data, location), (*location[:-1], "renamed"), at_place(job.data, location)
            )
            assert data_of(text) == expected
