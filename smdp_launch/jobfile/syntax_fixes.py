"""Fixes of a job file that is not valid YAML. A fix counts only if the lines that it changes are then correct."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from smdp_launch.diagnostics import Diagnostic, Edit, Span
from smdp_launch.edits import Lines, apply_edits, split_lines
from smdp_launch.jobfile.load import load
from smdp_launch.jobfile.model import schema
from smdp_launch.jobfile.yaml.document import Document, Parsed
from smdp_launch.jobfile.yaml.parser import parse
from smdp_launch.jobfile.yaml.syntax_causes import colon_edit

# Characters. Each attempt reads the whole text, and no person writes a longer job file.
_MAX_LENGTH = 50_000
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENT = re.compile(r"[ \t]*")
#: A key, text after it that contains ": " without quotes, and a comment.
_VALUE = re.compile(r"""([ \t]*(?:-[ ]+)*[^\s:#'"]+:[ \t]+)([^\s'"\[{|>&*!#].*?)([ \t]+#.*)?""")


def add_edits(parsed: Parsed, variables: Mapping[str, str]) -> Parsed:
    """``parsed`` with edits for its syntax error, if there are edits that certainly fix it."""
    document, problems = parsed
    text, problem = document.text, problems[0] if problems else None
    if problem is None or problem.code != "SMDP102" or problem.span is None or document.data or len(text) > _MAX_LENGTH:
        return parsed
    colons = _with_colons(problems, text)
    if colons and _is_correct(apply_edits(text, colons), {one.line for one in colons}, document, variables, known=True):
        return document, [replace(one, edits=(edit,)) for one, edit in zip(problems, colons, strict=True)]
    for propose in (_without_tabs, _with_quotes, _without_forbidden):
        for edits in propose(problem.span, text):
            if edits and _is_correct(apply_edits(text, edits), {edit.line for edit in edits}, document, variables):
                return document, [replace(problem, edits=tuple(edits)), *problems[1:]]
    return parsed


def _is_correct(
    text: str, lines: set[int], document: Document, variables: Mapping[str, str], *, known: bool = False
) -> bool:
    """Whether the text is YAML, and its ``lines`` have no errors as part of a job file.

    Args:
        known: the keys of the lines must be known ones, because their mapping accepts any name.
    """
    fixed, problems = parse(text, Document(document.file, document.folder), variables)
    # An overlay accepts any keys, so nothing shows that the fix is what the user meant.
    if any(entry.key.line in lines for at, entry in fixed.entries.items() if at[0] == "overlay"):
        return False
    keys = [at for at, entry in fixed.entries.items() if entry.key.line in lines and isinstance(at[-1], str)]
    if known and any(at[-1] not in schema.known_keys(at[:-1], fixed.data) for at in keys):
        return False
    diagnostics = [*problems, *load(fixed)[1]] if fixed.data else problems
    return bool(fixed.data) and not any(one.span is not None and one.span.line in lines for one in diagnostics)


def _with_colons(problems: Sequence[Diagnostic], text: str) -> list[Edit]:
    """An edit for each of ``problems`` if all of them are keys without a colon, else none."""
    lines = split_lines(text)
    spans = [one.span for one in problems if one.span is not None]
    edits = [colon_edit(one, lines[min(one.line, len(lines)) - 1]) for one in spans]
    found = [one for one in edits if one is not None]
    return found if len(found) == len(problems) else []


def _without_tabs(span: Span, text: str) -> Iterator[list[Edit]]:
    """Replace the tabs of every indentation with as many spaces as a level has, or as the line before has."""
    lines = split_lines(text)
    indents = [_indent(line) for line in lines]
    if "\t" not in indents[min(span.line, len(lines)) - 1]:
        return
    level = min((len(one) for one in indents if one and "\t" not in one), default=2)
    ways: list[Callable[[int, str], str]] = [
        *(lambda _, one, width=width: one.replace("\t", " " * width) for width in dict.fromkeys((level, 2, 4))),
        lambda number, _: next((one for one in reversed(indents[: number - 1]) if "\t" not in one), ""),
    ]
    for way in ways:
        yield [
            Edit(span.file, number, 1, number, len(one) + 1, way(number, one))
            for number, one in enumerate(indents, 1)
            if "\t" in one
        ]


def _indent(line: str) -> str:
    match = _INDENT.match(line)
    return match[0] if match is not None and line.strip() else ""


def _with_quotes(span: Span, text: str) -> Iterator[list[Edit]]:
    """Put quotes around a value that contains ": ". The edits do not repeat the value, which may be a secret."""
    lines = split_lines(text)
    match = _VALUE.fullmatch(lines[min(span.line, len(lines)) - 1])
    if match is not None and ": " in match[2]:
        quotes = [one.start() for one in re.finditer("'", match[0]) if match.start(2) <= one.start() < match.end(2)]
        places = (match.start(2), *quotes, match.end(2))
        yield [Edit(span.file, span.line, at + 1, span.line, at + 1, "'") for at in places]


def _without_forbidden(span: Span, text: str) -> Iterator[list[Edit]]:
    lines = Lines(text)
    yield [
        Edit(span.file, *lines.position(one.start()), *lines.position(one.end()), "")
        for one in _FORBIDDEN.finditer(text)
    ]
