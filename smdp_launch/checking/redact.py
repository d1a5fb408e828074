"""Takes the secrets of a job file out of everything that will be told about it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from smdp_launch.diagnostics import Diagnostic, Edit, Span
from smdp_launch.edits import split_lines
from smdp_launch.jobfile.yaml.document import Document
from smdp_launch.rules.request.secrets import find
from smdp_launch.secret_forms import NO_LITERAL, SHORTEST, known_secrets, says_secret, without_forms

_CODES = ("SMDP701", "SMDP702")
_HIDDEN = "*"
_FEW = 50
#: A name that says secret, and what stands behind it on the line; for files that cannot be parsed.
_NAMED = re.compile(
    r"(?i)(?<![\w-])([\w-]*(?:passw(?:or)?d|passphrase|secret|token|credentials?|api[_-]?key|access[_-]?key|private[_-]?key))"
    r"[\"']?\s*[:=]\s*[\"']?([^\s\"',}#][^\"',}#]*)"
)


def hide(diagnostics: Sequence[Diagnostic], document: Document) -> list[Diagnostic]:
    """The diagnostics without any secret of the document, and with variables by their names alone."""
    told = {(one.span, one.text) for one in diagnostics if one.code in _CODES}
    # What else is wrong with a value that has to go is no second mistake.
    kept = [one for one in diagnostics if one.code in _CODES or (one.span, one.text) not in told]
    redaction = _Redaction(document)
    return [redaction.of(one) for one in kept]


def hidden_text(document: Document, file: str, text: str) -> str:
    """The text of a file that ``document`` was read from, with stars in place of every character of a secret."""
    made = list(text)
    for start, end in _places(document, file, text):
        made[start:end] = [char if char in "\r\n" else _HIDDEN for char in made[start:end]]
    return "\n".join(_without_named(line) for line in split_lines("".join(made)))


def _places(document: Document, file: str, text: str) -> Iterator[tuple[int, int]]:
    """Where secrets are in the text: those that the document has, as they are written, and what looks like one."""
    secrets = [one for one in find(document) if one.span.file == file]
    layout = document.layouts.get(file)
    if layout is not None and layout.text == text:
        yield from filter(None, (layout.range(one.at, on_key=one.on_key) for one in secrets))
    pieces = {piece for one in secrets for piece in _pieces(one.text)} | {found for _, found in known_secrets(text)}
    for piece in pieces:
        yield from ((one.start(), one.end()) for one in re.finditer(re.escape(piece), text))


class _Redaction:
    """What is hidden keeps its length, so that the marks below an excerpt stay in place."""

    def __init__(self, document: Document) -> None:
        self._lines: dict[tuple[str, int], list[Span]] = {}
        pieces: set[str] = set()
        for secret in find(document):
            self._lines.setdefault((secret.span.file, secret.span.line), []).append(secret.span)
            pieces.update(_pieces(secret.text))
        self._pieces = _Pieces(pieces)
        self._cleaned: dict[tuple[str, tuple[str, str] | None], str] = {}
        # A short value is told by its place, lest every "2" be a variable.
        self._at: dict[Span, tuple[str, str]] = {}
        self._values: dict[str, str] = {}
        for span, value, written in _variables(document):
            self._at[span] = (value, written)
            if len(value) >= SHORTEST:
                self._values[value] = written

    def of(self, one: Diagnostic) -> Diagnostic:
        here = self._at.get(one.span) if one.span is not None else None
        message, text, help_ = (self._clean(each, here) for each in (one.message, one.text, one.help))
        span = self._place(one.span, here) if one.span is not None else None
        also = tuple(self._place(each, self._at.get(each)) for each in one.also)
        return replace(one, message=message, text=text, help=help_, span=span, also=also, edits=self._edits(one))

    def _edits(self, one: Diagnostic) -> tuple[Edit, ...]:
        """None where one would write a secret or what a variable holds: starred, it would spoil the file.

        A removal writes nothing. What is wrong with a secret has no other edit.
        """
        if not any(edit.text for edit in one.edits):
            return one.edits
        parts = {one.text, *(part for edit in one.edits for part in (edit.text, edit.file))}
        parts |= {one.span.source} if one.span is not None and one.code == "SMDP102" else set()
        return one.edits if all(self._clean(part, None) == part for part in parts) else ()

    def _place(self, span: Span, here: tuple[str, str] | None) -> Span:
        # A short value of this place may stand in the path of the file by chance.
        return replace(span, file=self._clean(span.file, None), source=self._clean(self._line(span), here))

    def _clean(self, text: str, here: tuple[str, str] | None) -> str:
        # One line is the excerpt of many diagnostics.
        known = self._cleaned.get((text, here))
        if known is not None:
            return known
        made = text
        for value, written in [*([here] if here is not None else []), *self._values.items()]:
            made = made.replace(value, written) if value else made
        made = without_forms(_without_named(self._pieces.hidden(made)))
        self._cleaned[text, here] = made
        return made

    def _line(self, span: Span) -> str:
        line = span.source
        for secret in self._lines.get((span.file, span.line), ()):
            first, last = secret.column - 1, secret.end_column - 1
            line = line[:first] + _HIDDEN * len(line[first:last]) + line[last:]
        return line


class _Pieces:
    """Texts to hide. A file may hold thousands, and each is looked for in everything that is told."""

    def __init__(self, pieces: set[str]) -> None:
        self._pieces = pieces
        self._sizes = sorted({len(one) for one in pieces})

    def hidden(self, text: str) -> str:
        for one in sorted(self._found(text), key=len, reverse=True):
            text = text.replace(one, _HIDDEN * len(one))
        return text

    def _found(self, text: str) -> set[str]:
        if len(self._pieces) <= _FEW:
            return {one for one in self._pieces if one in text}
        sizes = (size for size in self._sizes if size <= len(text))
        return self._pieces & {text[at : at + size] for size in sizes for at in range(len(text) - size + 1)}


def _pieces(text: str) -> Iterator[str]:
    """The secret, and what stands of it on one line where it is written over several."""
    yield text
    yield from (one for one in text.split() if len(one) >= SHORTEST)


def _variables(document: Document) -> Iterator[tuple[Span, str, str]]:
    """Where a variable was replaced: the place, the value made of it, and what is written there."""
    for at, entry in document.entries.items():
        if "${" in entry.text:
            value = _value(document, at)
            if isinstance(value, str | int | float) and str(value) != entry.text:
                yield entry.value, str(value), entry.text


def _value(document: Document, at: Sequence[str | int]) -> object:
    value: object = document.data
    for part in at:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
    return value


def _without_named(text: str) -> str:
    """For what is told about a file that could not be parsed: no document holds its secrets."""
    return _NAMED.sub(_hidden_value, text)


def _hidden_value(match: re.Match[str]) -> str:
    value = match[2]
    if len(value) < SHORTEST or NO_LITERAL.match(value) or not says_secret(match[1]):
        return match[0]
    return match[0].removesuffix(value) + _HIDDEN * len(value)
