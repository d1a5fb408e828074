"""Fixes of a job file that is no YAML. A fix is one only if the lines that it changes are right in a job file then."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from smdp_launch.diagnostics import Diagnostic, Edit, Span
from smdp_launch.edits import Lines, apply_edits, split_lines
from smdp_launch.jobfile.load import load
from smdp_launch.jobfile.yaml.document import Document, parse

# Characters. Each try reads the whole text, and a longer one is no job file that a person wrote.
_LONGEST = 50_000
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENT = re.compile(r"[ \t]*")
#: A key and text behind it that holds ": " without quotes, and a comment.
_VALUE = re.compile(r"""([ \t]*(?:-[ ]+)*[^\s:#'"]+:[ \t]+)([^\s'"\[{|>&*!#].*?)([ \t]+#.*)?""")

Found = tuple[Document, list[Diagnostic]]


def with_edits(found: Found, variables: Mapping[str, str]) -> Found:
    """The document as it was read; its syntax error with the edits that make the file right, if they are certain."""
    document, problems = found
    text, problem = document.text, problems[0] if problems else None
    if problem is None or problem.code != "SMDP102" or problem.span is None or document.data or len(text) > _LONGEST:
        return found
    for one in (_without_tabs, _with_quotes, _without_forbidden):
        for edits in one(problem.span, text):
            if edits and _is_right(apply_edits(text, edits), {edit.line for edit in edits}, document, variables):
                return document, [replace(problem, edits=tuple(edits)), *problems[1:]]
    return found


def _is_right(text: str, lines: set[int], document: Document, variables: Mapping[str, str]) -> bool:
    """Whether the text is YAML, and a job file has nothing against what is on ``lines``."""
    made, problems = parse(text, Document(document.file, document.folder), variables)
    # An overlay may hold anything, so nothing says that this is what was meant.
    if any(entry.key.line in lines for at, entry in made.entries.items() if at[0] == "overlay"):
        return False
    found = [*problems, *load(made)[1]] if made.data else problems
    return bool(made.data) and not any(one.span is not None and one.span.line in lines for one in found)


def _without_tabs(span: Span, text: str) -> Iterator[list[Edit]]:
    """Spaces for the tabs of every indentation: as many as the file uses for a level, or those of the line before."""
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
    found = _INDENT.match(line)
    return found[0] if found is not None and line.strip() else ""


def _with_quotes(span: Span, text: str) -> Iterator[list[Edit]]:
    """Quotes around a value that holds ": ". The edits do not repeat the value, which may be a secret."""
    lines = split_lines(text)
    found = _VALUE.fullmatch(lines[min(span.line, len(lines)) - 1])
    if found is not None and ": " in found[2]:
        quotes = [one.start() for one in re.finditer("'", found[0]) if found.start(2) <= one.start() < found.end(2)]
        places = (found.start(2), *quotes, found.end(2))
        yield [Edit(span.file, span.line, at + 1, span.line, at + 1, "'") for at in places]


def _without_forbidden(span: Span, text: str) -> Iterator[list[Edit]]:
    lines = Lines(text)
    yield [
        Edit(span.file, *lines.position(one.start()), *lines.position(one.end()), "")
        for one in _FORBIDDEN.finditer(text)
    ]
