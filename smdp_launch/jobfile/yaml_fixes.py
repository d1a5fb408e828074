"""Fixes of text that is no YAML: a fix is one only if the text can be read with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from smdp_launch.diagnostics import Diagnostic, Edit, Span
from smdp_launch.edits import Lines, apply_edits, split_lines

# Characters. Each try reads the whole text, and a longer one is no job file that a person wrote.
_LONGEST = 50_000
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INDENT = re.compile(r"[ \t]*")
#: A key and text behind it that holds ": " without quotes, and a comment.
_VALUE = re.compile(r"""([ \t]*(?:-[ ]+)*[^\s:#'"]+:[ \t]+)([^\s'"\[{|>&*!#].*?)([ \t]+#.*)?""")


def with_edits(problem: Diagnostic, text: str, can_be_read: Callable[[str], bool]) -> Diagnostic:
    """The syntax error with the edits that make ``text`` YAML, if that is certain."""
    if problem.code != "SMDP102" or problem.span is None or len(text) > _LONGEST:
        return problem
    for one in (_without_tabs, _with_quotes, _without_forbidden):
        edits = tuple(one(problem.span, text))
        if edits and can_be_read(apply_edits(text, edits)):
            return replace(problem, edits=edits)
    return problem


def _without_tabs(span: Span, text: str) -> Iterator[Edit]:
    """Spaces for the tabs of every indentation, as many as the file uses for a level."""
    lines = split_lines(text)
    indents = [str(_INDENT.match(line)[0]) for line in lines]  # type: ignore[index]
    if "\t" not in indents[min(span.line, len(lines)) - 1]:
        return
    level = min((len(one) for one in indents if one and "\t" not in one), default=2)
    for number, one in enumerate(indents, 1):
        if "\t" in one:
            yield Edit(span.file, number, 1, number, len(one) + 1, one.replace("\t", " " * level))


def _with_quotes(span: Span, text: str) -> Iterator[Edit]:
    """Quotes around a value that holds ": ". The edits do not repeat the value, which may be a secret."""
    lines = split_lines(text)
    found = _VALUE.fullmatch(lines[min(span.line, len(lines)) - 1])
    if found is not None and ": " in found[2]:
        quotes = [one.start() for one in re.finditer("'", found[0]) if found.start(2) <= one.start() < found.end(2)]
        for at in (found.start(2), *quotes, found.end(2)):
            yield Edit(span.file, span.line, at + 1, span.line, at + 1, "'")


def _without_forbidden(span: Span, text: str) -> Iterator[Edit]:
    lines = Lines(text)
    for one in _FORBIDDEN.finditer(text):
        yield Edit(span.file, *lines.position(one.start()), *lines.position(one.end()), "")
