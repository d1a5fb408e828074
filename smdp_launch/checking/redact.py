"""Redact the secrets of a job file: asterisks take their place in its diagnostics and diffs."""

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
#: A name that means a secret, and the value after it on the line; for files that cannot be parsed.
_NAMED_SECRET = re.compile(
    r"(?i)(?<![\w-])([\w-]*(?:passw(?:or)?d|passphrase|secret|token|credentials?|api[_-]?key|access[_-]?key|private[_-]?key))"
    r"[\"']?\s*[:=]\s*[\"']?([^\s\"',}#][^\"',}#]*)"
)
#: A name that ends with "key", and the value of 40 hexadecimal digits after it.
_HEXADECIMAL_KEY = re.compile(r"(?i)((?<![\w-])[\w-]*key[\"']?\s*[:=]\s*[\"']?)[0-9a-f]{40}(?![0-9a-z])")


def redact(diagnostics: Sequence[Diagnostic], document: Document) -> list[Diagnostic]:
    """The diagnostics without secrets, and with references in place of the values of variables."""
    secrets = {(one.span, one.text) for one in diagnostics if one.code in _CODES}
    # A secret must be removed, so other errors of its value do not matter.
    relevant = [one for one in diagnostics if one.code in _CODES or (one.span, one.text) not in secrets]
    redaction = _Redaction(document)
    return [redaction.of(one) for one in relevant]


def redact_text(document: Document, file: str, text: str) -> str:
    """The text of a file of ``document``, with a star in place of every character of a secret."""
    characters = list(text)
    for start, end in _places(document, file, text):
        characters[start:end] = [one if one in "\r\n" else _HIDDEN for one in characters[start:end]]
    return "\n".join(_without_named(line) for line in split_lines("".join(characters)))


def _places(document: Document, file: str, text: str) -> Iterator[tuple[int, int]]:
    """The offsets of secrets in the text: those of the document, and texts with the form of a secret."""
    secrets = [one for one in find(document) if one.span.file == file]
    layout = document.layouts.get(file)
    if layout is not None and layout.text == text:
        yield from filter(None, (layout.range(one.at, on_key=one.on_key) for one in secrets))
    pieces = {piece for one in secrets for piece in _pieces(one.text)} | {secret for _, secret in known_secrets(text)}
    for piece in pieces:
        yield from ((one.start(), one.end()) for one in re.finditer(re.escape(piece), text))


class _Redaction:
    """Replaces secrets by stars of the same length, so that the marks below an excerpt stay correct."""

    def __init__(self, document: Document) -> None:
        self._lines: dict[tuple[str, int], list[Span]] = {}
        pieces: set[str] = set()
        for secret in find(document):
            self._lines.setdefault((secret.span.file, secret.span.line), []).append(secret.span)
            pieces.update(_pieces(secret.text))
        self._pieces = _Pieces(pieces)
        self._cleaned: dict[tuple[str, tuple[str, str] | None], str] = {}
        # A short value is replaced only at its own place. Otherwise every "2" could become a variable.
        self._at: dict[Span, tuple[str, str]] = {}
        self._values: dict[str, str] = {}
        for span, value, written in _variables(document):
            self._at[span] = (value, written)
            if len(value) >= SHORTEST:
                self._values[value] = written

    def of(self, one: Diagnostic) -> Diagnostic:
        variable = self._at.get(one.span) if one.span is not None else None
        message, text, help_ = (self._clean(each, variable) for each in (one.message, one.text, one.help))
        span = self._place(one.span, variable) if one.span is not None else None
        also = tuple(self._place(each, self._at.get(each)) for each in one.also)
        return replace(one, message=message, text=text, help=help_, span=span, also=also, edits=self._edits(one))

    def _edits(self, one: Diagnostic) -> tuple[Edit, ...]:
        """The edits; none if one would write a secret or the value of a variable, because stars would break the file.

        A removal writes nothing, so it stays.
        """
        if not any(edit.text for edit in one.edits):
            return one.edits
        parts = {one.text, *(part for edit in one.edits for part in (edit.text, edit.file))}
        parts |= {one.span.source} if one.span is not None and one.code == "SMDP102" else set()
        return one.edits if all(self._clean(part, None) == part for part in parts) else ()

    def _place(self, span: Span, variable: tuple[str, str] | None) -> Span:
        # The path of the file can contain a short value of this place by chance.
        return replace(span, file=self._clean(span.file, None), source=self._clean(self._line(span), variable))

    def _clean(self, text: str, variable: tuple[str, str] | None) -> str:
        # Many diagnostics have the same line as their excerpt.
        cached = self._cleaned.get((text, variable))
        if cached is not None:
            return cached
        result = text
        for value, written in [*([variable] if variable is not None else []), *self._values.items()]:
            result = result.replace(value, written) if value else result
        result = without_forms(_without_named(self._pieces.hidden(result)))
        self._cleaned[text, variable] = result
        return result

    def _line(self, span: Span) -> str:
        line = span.source
        for secret in self._lines.get((span.file, span.line), ()):
            first, last = secret.column - 1, secret.end_column - 1
            line = line[:first] + _HIDDEN * len(line[first:last]) + line[last:]
        return line


class _Pieces:
    """Texts to hide. A file can have thousands of them, and every message is searched for each."""

    def __init__(self, pieces: set[str]) -> None:
        self._pieces = pieces
        self._sizes = sorted({len(one) for one in pieces})

    def hidden(self, text: str) -> str:
        for one in sorted(self._contained(text), key=len, reverse=True):
            text = text.replace(one, _HIDDEN * len(one))
        return text

    def _contained(self, text: str) -> set[str]:
        if len(self._pieces) <= _FEW:
            return {one for one in self._pieces if one in text}
        sizes = (size for size in self._sizes if size <= len(text))
        return self._pieces & {text[at : at + size] for size in sizes for at in range(len(text) - size + 1)}


def _pieces(text: str) -> Iterator[str]:
    """The secret, and its parts on single lines, if it is written on several."""
    yield text
    yield from (one for one in text.split() if len(one) >= SHORTEST)


def _variables(document: Document) -> Iterator[tuple[Span, str, str]]:
    """The replaced references: the place, the resulting value, and the text in the file."""
    for at, entry in document.entries.items():
        if "${" in entry.text:
            value = document.value(at)
            if isinstance(value, str | int | float) and str(value) != entry.text:
                yield entry.value, str(value), entry.text


def _without_named(text: str) -> str:
    """Redact by name, for files that cannot be parsed, whose secrets no document has."""
    hidden = _HEXADECIMAL_KEY.sub(lambda match: match[1] + _HIDDEN * 40, text)
    return _NAMED_SECRET.sub(_hidden_value, hidden)


def _hidden_value(match: re.Match[str]) -> str:
    value = match[2]
    if len(value) < SHORTEST or NO_LITERAL.match(value) or not says_secret(match[1]):
        return match[0]
    return match[0].removesuffix(value) + _HIDDEN * len(value)
