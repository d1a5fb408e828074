"""Secrets in a job file. They would be readable for everybody who may describe the job, so both kinds are errors.

A secret is known by its form, or by the name of the value it is given as. Whatever else is wrong with the file, the
secrets in it stand in no output: ``hide`` goes over everything that will be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from smdp_launch.diagnostics import Diagnostic, Span
from smdp_launch.jobfile.document import Document, Location
from smdp_launch.rules.facts import Facts, Finding, rule

#: What it is, and the form of it; the first group, where there is one, is the secret.
_FORMS = tuple(
    (what, re.compile(form))
    for what, form in (
        ("an AWS access key", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
        ("a private key", r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----|[\s\S]*)"),
        ("a GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,})"),
        ("a GitLab token", r"\bglpat-[A-Za-z0-9_-]{20,}"),
        ("a Hugging Face token", r"\bhf_[A-Za-z0-9]{30,}"),
        ("an API key", r"\bsk-[A-Za-z0-9_-]{20,}"),
        ("a Slack token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("a Slack address", r"https://hooks\.slack\.com/services/([A-Za-z0-9/]{20,})"),
        ("a Google API key", r"\bAIza[0-9A-Za-z_-]{35}"),
        ("a package index's token", r"\b(?:pypi-[A-Za-z0-9_-]{40,}|npm_[A-Za-z0-9]{36})"),
        ("a Weights & Biases key", r"\b(?:local-[0-9a-f]{40}|wandb_v[0-9]_[A-Za-z0-9_]{40,})"),
        ("a signed token", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
        ("a password in an address", r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s:/@]*:((?!\$\{)[^\s/@]+)@"),
    )
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ALONE = {"password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "apikey", "pwd"}
_PAIRS = {("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "key")}
#: Before "token": one of a tokenizer's, not of an account.
_TOKENIZER = {"pad", "cls", "sep", "bos", "eos", "unk", "mask", "special", "start", "end", "stop", "image", "audio"} | {
    *("video", "prompt", "target", "text", "word", "per", "first", "last", "next", "prefix", "suffix", "placeholder"),
}
_NO_LITERAL = re.compile(r"(?:/|\.{1,2}/|~|arn:|[a-z0-9+]+://|\$\{)")
#: A name that says secret, and what stands behind it on the line; for files that cannot be parsed.
_LINE = re.compile(
    r"(?i)[\w-]*(?:passw(?:or)?d|passphrase|secret|token|credentials?|api[_-]?key|access[_-]?key|private[_-]?key)"
    r"[\"']?\s*[:=]\s*[\"']?([^\s\"',}#][^\"',}#]*)"
)
_SHORTEST = 8
_HIDDEN = "*"


@dataclass(frozen=True)
class Secret:
    """One secret: what it is, where, and its text. ``by_name`` if only the name gave it away."""

    at: Location
    what: str
    text: str
    span: Span
    by_name: bool = False


def find(document: Document) -> list[Secret]:
    """Every secret in the document, whatever else is wrong with it."""
    return [one for at, value in _texts(document.data, ()) for one in _secrets(document, at, value)]


def _texts(value: Any, at: Location) -> Iterator[tuple[Location, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, (*at, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _texts(one, (*at, index))
    elif isinstance(value, str):
        yield at, value


def _secrets(document: Document, at: Location, value: str) -> Iterator[Secret]:
    entry = document.entry(at)
    found = [(what, match[match.lastindex or 0]) for what, form in _FORMS for match in form.finditer(value)]
    for what, text in found:
        yield Secret(at, what, text, entry.value)
    name = next((one for one in reversed(at) if isinstance(one, str)), "")
    # What a variable of this machine holds is not in the file.
    literal = "${" not in entry.text and not _NO_LITERAL.match(value)
    if not found and literal and len(value) >= _SHORTEST and says_secret(name):
        yield Secret(at, name, value, entry.value, by_name=True)


def says_secret(name: str) -> bool:
    """Whether a value of this name is a secret: ``DB_PASSWORD`` and ``hfToken`` are, ``pad_token`` is none."""
    words = [one.lower() for one in _WORDS.findall(name)]
    before, last = (words[-2] if len(words) > 1 else ""), (words[-1] if words else "")
    if last == "token" and before in _TOKENIZER:
        return False
    return last in _ALONE or (before, last) in _PAIRS


@rule("SMDP701")
def known_forms(facts: Facts) -> Iterator[Finding]:
    for one in find(facts.document):
        if not one.by_name:
            message = f"this is {one.what}: whoever may describe the job can read it"
            yield Finding(one.at, message, _instead(one))


@rule("SMDP702")
def secret_names(facts: Facts) -> Iterator[Finding]:
    for one in find(facts.document):
        if one.by_name:
            message = f"{one.what} says that its value is secret, and whoever may describe the job can read it"
            yield Finding(one.at, message, _instead(one))


def _instead(one: Secret) -> str:
    role = "the execution role has its own credentials" if "AWS" in one.what else "let the script fetch it"
    return f"leave it out: {role}" + ("" if "AWS" in one.what else " from AWS Secrets Manager with the execution role")


def hide(diagnostics: Sequence[Diagnostic], document: Document) -> list[Diagnostic]:
    """The diagnostics without any secret of the document, and with variables by their names alone."""
    secrets = find(document)
    pieces = sorted({piece for one in secrets for piece in _pieces(one.text)}, key=len, reverse=True)
    written = list(_variables(document))
    return [_hidden(one, secrets, pieces, written) for one in diagnostics]


def _pieces(text: str) -> Iterator[str]:
    """The secret, and what stands of it on one line where it is written over several."""
    yield text
    yield from (one for one in text.split() if len(one) >= _SHORTEST)


def _variables(document: Document) -> Iterator[tuple[Span, str, str]]:
    """Where a variable was replaced: the place, the value made of it, and what is written there."""
    for at, value in _texts(document.data, ()):
        entry = document.entries.get(at)
        if entry is not None and "${" in entry.text and value != entry.text:
            yield entry.value, value, entry.text


def _hidden(
    one: Diagnostic, secrets: Sequence[Secret], pieces: Sequence[str], written: Sequence[tuple[Span, str, str]]
) -> Diagnostic:
    def clean(text: str) -> str:
        for place, value, name in written:
            # A short value is told by its place, lest every "2" be a variable.
            if len(value) >= _SHORTEST or place == one.span:
                text = text.replace(value, name)
        for piece in pieces:
            text = text.replace(piece, _HIDDEN * len(piece))
        return _without_forms(text)

    span = one.span
    if span is not None:
        span = replace(span, file=clean(span.file), source=_line(span, secrets, clean))
    return replace(one, message=clean(one.message), text=clean(one.text), help=clean(one.help), span=span)


def _line(span: Span, secrets: Sequence[Secret], clean: Callable[[str], str]) -> str:
    """The line of the excerpt; as long as it was, so that marks below it stay in place."""
    line = span.source
    for one in secrets:
        if (one.span.file, one.span.line) == (span.file, span.line):
            first, last = one.span.column - 1, one.span.end_column - 1
            line = line[:first] + _HIDDEN * len(line[first:last]) + line[last:]
    for match in _LINE.finditer(line):
        if len(match[1]) >= _SHORTEST and not _NO_LITERAL.match(match[1]) and says_secret(_name(match[0])):
            line = line[: match.start(1)] + _HIDDEN * len(match[1]) + line[match.end(1) :]
    return clean(line)


def _name(text: str) -> str:
    return re.split(r"[\"':=]", text, maxsplit=1)[0]


def _without_forms(text: str) -> str:
    """For what is told about a file that could not be parsed: no document holds its secrets."""
    for _, form in _FORMS:
        text = form.sub(_hidden_match, text)
    return text


def _hidden_match(match: re.Match[str]) -> str:
    secret = match[match.lastindex or 0]
    return match[0].replace(secret, _HIDDEN * len(secret))
