"""The cause of a syntax error that the parser reports at what follows from it: a quote, brace or bracket that is not
closed, a key without its colon, and a line with the indentation of no other key.

A cause counts only if the parser reads more of the text without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ruamel.yaml.error import MarkedYAMLError

from smdp_launch.diagnostics import Diagnostic, Edit, Span
from smdp_launch.jobfile.yaml.common_errors import MOST_PARSED, NEAR, START, FailsAt, lines_to_repair
from smdp_launch.secret_forms import says_secret

# A quote after which the line has no quote of its kind.
_OPEN_QUOTE = re.compile(r"""(?<![^\s\[{,])(["'])(?:(?!\1).)*$""")
_CLOSING = {"{": "}", "[": "]"}
_COMMENT = re.compile(r"(?:^|\s)#")
# A colon that ends a key.
_COLON = re.compile(r":(?:\s|$)")
_OPENING = re.compile(r"[\[{\"']")
# A key, and text without quotes with a colon that would end another one.
_SECOND_COLON = re.compile(r"""[^:]*:\s+[^\s"'\[{|>&*!#].*?:(?:\s|$)""")
_NO_COLON = re.compile(r"""(?P<key>"[^"]+"|'[^']+'|[A-Za-z_][\w.-]*)(?P<sign>[ \t]*=(?!=)[ \t]*|[ \t]+|$)""")


def find(file: str, text: str, failure: int, error: MarkedYAMLError, fails_at: FailsAt) -> list[Diagnostic]:
    """The causes of ``error``, which is at line ``failure``, from 0; empty if they are not known."""
    search = _Search(file, text, failure, fails_at)
    one = search.open_quote(error) or search.open_bracket(error)
    if one is not None or has_second_colon(search.line(search.failure)):
        return [one] if one is not None else []
    without_colon = [missing_colon(file, index, search.lines[index]) for index in search.without_colon()]
    if without_colon:
        return without_colon
    one = search.indentation()
    return [one] if one is not None else []


def has_second_colon(line: str) -> bool:
    """Whether the value on a line contains a colon and a space, and has no quotes."""
    return _SECOND_COLON.match(_content(line)) is not None


def missing_colon(file: str, index: int, line: str) -> Diagnostic:
    """The diagnostic for the key at the start of a line that has no colon."""
    start, key, _ = _without_colon(line) or (0, "", "")
    written = _content(with_colon(line) or line).strip()
    name, end = key.strip("\"'"), start + len(key)
    # The text after the key can be a secret, and without a colon nothing else shows that.
    source, help_ = (line[:end], f"write {key}: and its value") if says_secret(name) else (line, f"write {written}")
    span = Span(file, index + 1, end + 1, end + 2, source)
    return Diagnostic("SMDP102", f"there is no colon after {name}", span, source.strip(), help_)


def with_colon(line: str) -> str | None:
    """The line with a colon after the key at its start; None if it has one, or has no key."""
    found = _without_colon(line)
    if found is None:
        return None
    start, key, sign = found
    end = start + len(key)
    return f"{line[:end]}: {line[end + len(sign) :]}" if "=" in sign else f"{line[:end]}:{line[end:]}"


def colon_edit(span: Span, line: str) -> Edit | None:
    """The edit that adds the colon at ``span``; None if no colon is missing there, or the value may be a secret."""
    found = _without_colon(line)
    if found is None or says_secret(found[1].strip("\"'")) or span.column != found[0] + len(found[1]) + 1:
        return None
    is_sign = "=" in found[2]
    end = span.column + len(found[2]) if is_sign else span.column
    return Edit(span.file, span.line, span.column, span.line, end, ": " if is_sign else ":")


def _without_colon(line: str) -> tuple[int, str, str] | None:
    """Where the key of a line without a colon starts, the key, and what is between it and its value."""
    start = START.match(line)
    match = _NO_COLON.match(line, start.end() if start is not None else 0)
    if match is None or _COLON.search(_OPENING.split(_content(line)[match.end() :], 1)[0]):
        return None
    return match.start(), match["key"], match["sign"]


def _content(line: str) -> str:
    """The line without its comment and the spaces before it."""
    comment = _COMMENT.search(line)
    return (line if comment is None else line[: comment.start()]).rstrip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


class _Indentation(NamedTuple):
    """A line with another indentation.

    Args:
        reaches: the line at which the parser then fails; the number of lines if it does not.
        change: the number of spaces more or less.
    """

    row: int
    indent: int
    reaches: int
    change: int

    @property
    def rank(self) -> tuple[int, int]:
        return self.reaches, -self.change


class _Search:
    def __init__(self, file: str, text: str, failure: int, fails_at: FailsAt) -> None:
        self.file = file
        self.text = text
        self.lines = text.splitlines()
        self.failure = min(failure, len(self.lines))
        self.fails_at = fails_at
        self._most = MOST_PARSED // max(1, len(text))

    def open_quote(self, error: MarkedYAMLError) -> Diagnostic | None:
        """The quote that is closed by the next one in the file, or not at all."""
        rows = range(min(self.failure, len(self.lines) - 1) + 1)
        opened = ((row, match) for row in rows if (match := _OPEN_QUOTE.search(self.lines[row])) is not None)
        for row, match in islice(opened, self._most):
            line, quote = self.lines[row], match[1]
            ends = {len(_content(line)), len(_content(line).rstrip(" ,]}"))}
            if any(self._reaches(self._with_line(row, f"{line[:end]}{quote}{line[end:]}")) for end in ends):
                return self._not_closed(row, match.start(), "quote", f"add {quote} at the end of the text")
        mark = error.context_mark
        if mark is None or error.context != "while scanning a quoted scalar":
            return None
        line = self.line(mark.line)
        is_second = mark.column > 0 and line[mark.column - 1 : mark.column] == line[mark.column : mark.column + 1]
        help_ = "remove it" if is_second else f"add {line[mark.column : mark.column + 1]} at the end of the text"
        return self._not_closed(mark.line, mark.column, "quote", help_)

    def open_bracket(self, error: MarkedYAMLError) -> Diagnostic | None:
        mark, problem = error.context_mark, error.problem_mark
        if mark is None or problem is None or not str(error.context).startswith("while parsing a flow"):
            return None
        opening = self.line(mark.line)[mark.column : mark.column + 1]
        if opening not in _CLOSING:
            return None
        closing = _CLOSING[opening]
        if "<stream end>" not in str(error.problem):
            rows = range(mark.line, min(problem.line + 1, mark.line + NEAR))
            texts = [self._with_line(row, _closed(self.line(row), closing)) for row in rows]
            if str(error.problem).endswith(("got '}'", "got ']'")):
                line = self.line(problem.line)
                texts.append(self._with_line(problem.line, line[: problem.column] + closing + line[problem.column :]))
            if not any(map(self._reaches, texts)):
                return None
        return self._not_closed(mark.line, mark.column, opening, f"add {closing} after its last entry")

    def without_colon(self) -> Iterator[int]:
        return lines_to_repair(self.text, self.failure, self.fails_at, with_colon)

    def indentation(self) -> Diagnostic | None:
        """The failing line, or the line above it, if the parser reads more with another indentation."""
        row, above = self.failure, self._content_row(self.failure, -1)
        if row >= len(self.lines) or above is None or not self._starts_with_key(row):
            return None
        found = [*self._other_indents(row), *self._other_indents(above, only=_indent(self.lines[row]))]
        best = max((one.rank for one in found), default=None)
        causes = [one for one in found if one.rank == best]
        if not causes:
            return None
        cause = causes[0]
        is_certain = len(causes) == 1
        beside = "the keys beside it" if is_certain else f"line {above + 1} above it"
        other = cause.indent if is_certain else _indent(self.lines[above])
        own = _indent(self.lines[cause.row])
        message = f"line {cause.row + 1} is {_indented(own)}, and {beside} {_compared(other, own, is_certain)}"
        line = self.lines[cause.row]
        span = Span(self.file, cause.row + 1, own + 1, own + 2, line)
        help_ = "indent the keys of one section by the same number of spaces"
        return Diagnostic("SMDP102", message, span, line.strip(), help_)

    def _other_indents(self, row: int, only: int | None = None) -> Iterator[_Indentation]:
        if not self._starts_with_key(row):
            return
        line, below = self.lines[row], self._content_row(row, 1)
        own = _indent(line)
        # The children of a key stay its children.
        deepest = _indent(self.lines[below]) if below is not None else 0
        is_section = below is not None and deepest > own and _content(line).endswith(":")
        above = {_indent(one) for one in self.lines[:row] if _content(one).strip()} if only is None else {only}
        for indent in sorted(above - {own}, key=lambda one: abs(one - own))[:NEAR]:
            if is_section and indent >= deepest:
                continue
            after = self._reaches(self._with_line(row, " " * indent + line.lstrip(" ")))
            if after is not None:
                yield _Indentation(row, indent, after, abs(indent - own))

    def _starts_with_key(self, row: int) -> bool:
        content = _content(self.lines[row]).lstrip(" ")
        return _COLON.search(content) is not None and not content.startswith(("-", "\t"))

    def _content_row(self, row: int, step: int) -> int | None:
        """The next line above or below that is not only a comment."""
        rows = range(row + step, -1 if step < 0 else len(self.lines), step)
        return next((one for one in rows if _content(self.lines[one]).strip()), None)

    def line(self, row: int) -> str:
        return self.lines[row] if row < len(self.lines) else ""

    def _with_line(self, row: int, line: str) -> str:
        return "\n".join([*self.lines[:row], line, *self.lines[row + 1 :], ""])

    def _reaches(self, text: str) -> int | None:
        """The line at which the parser fails, if it reads more of ``text`` than of the file."""
        if self._most <= 0:
            return None
        self._most -= 1
        after = self.fails_at(text)
        return len(self.lines) + 1 if after is None else after if after > self.failure else None

    def _not_closed(self, row: int, column: int, what: str, help_: str) -> Diagnostic:
        line = self.line(row)
        span = Span(self.file, row + 1, column + 1, column + 2, line)
        return Diagnostic("SMDP102", f"this {what} is not closed", span, line.strip(), help_)


def _closed(line: str, closing: str) -> str:
    end = len(_content(line))
    return f"{line[:end]}{closing}{line[end:]}"


def _indented(spaces: int) -> str:
    return f"indented by {spaces} space{'s' if spaces > 1 else ''}" if spaces else "not indented"


def _compared(other: int, own: int, is_plural: bool) -> str:
    verb = "are" if is_plural else "is"
    if not other:
        return f"{verb} not"
    return f"by {other}" if own else f"{verb} {_indented(other)}"
