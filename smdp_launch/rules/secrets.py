"""Secrets in a job file. They would be readable for everybody who may describe the job, so both kinds are errors.

A secret is known by its form, or by the name of the value it is given as.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from smdp_launch.diagnostics import Span
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
        ("a signed token", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
        ("a password in an address", r"\b[a-zA-Z][a-zA-Z0-9+.-]{0,30}://[^\s:/@]*:((?!\$\{)[^\s/@]+)@"),
    )
)
# Every form holds one of these; most text holds none.
_HINT = re.compile(
    r"(?:AKIA|ASIA|ABIA|ACCA|-----BEGIN|gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox|hooks\.slack|AIza|pypi-|npm_|local-"
    r"|wandb_v|eyJ|://)"
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ALONE = {"password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "apikey", "pwd"}
_PAIRS = {("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "key")}
#: Before "token": one of a tokenizer's, not of an account.
_TOKENIZER = {"pad", "cls", "sep", "bos", "eos", "unk", "mask", "special", "start", "end", "stop", "image", "audio"} | {
    *("video", "prompt", "target", "text", "word", "per", "first", "last", "next", "prefix", "suffix", "placeholder"),
}
#: A path, an address or a variable: it says where something is, and is not it.
NO_LITERAL = re.compile(r"(?:/|\.{1,2}/|~|arn:|[a-z0-9+]+://|\$\{)")
#: Characters. Nothing shorter keeps anybody out.
SHORTEST = 8


@dataclass(frozen=True)
class Secret:
    """One secret: what it is, where, and its text.

    Args:
        by_name: only the name gave it away.
        on_key: it is written as a key.
    """

    at: Location
    what: str
    text: str
    span: Span
    by_name: bool = False
    on_key: bool = False


def find(document: Document) -> list[Secret]:
    """Every secret in the document, whatever else is wrong with it."""
    keys = [(at, at[-1], entry.key) for at, entry in document.entries.items() if isinstance(at[-1], str)]
    in_keys = (one for at, key, span in keys for one in _of_known_form(at, str(key), span, on_key=True))
    return [*in_keys, *(one for at, value in _texts(document.data, ()) for one in _secrets(document, at, value))]


def _of_known_form(at: Location, value: str, span: Span, *, on_key: bool = False) -> Iterator[Secret]:
    for what, form in _FORMS if _HINT.search(value) else ():
        for match in form.finditer(value):
            yield Secret(at, what, match[match.lastindex or 0], span, on_key=on_key)


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
    found = list(_of_known_form(at, value, entry.value))
    yield from found
    name = next((one for one in reversed(at) if isinstance(one, str)), "")
    # A variable of this machine is no way out: what it holds would stand in the request.
    if not found and not NO_LITERAL.match(value) and len(value) >= SHORTEST and says_secret(name):
        yield Secret(at, name, value, entry.value, by_name=True)


def without_forms(text: str) -> str:
    """The text with stars in place of everything that has the form of a secret."""
    for _, form in _FORMS if _HINT.search(text) else ():
        text = form.sub(_hidden, text)
    return text


def _hidden(match: re.Match[str]) -> str:
    secret = match[match.lastindex or 0]
    return match[0].replace(secret, "*" * len(secret))


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
            message = f"this is {one.what}, which whoever may describe the job can read"
            yield Finding(one.at, message, _instead(one), on_key=one.on_key)


@rule("SMDP702")
def secret_names(facts: Facts) -> Iterator[Finding]:
    for one in find(facts.document):
        if one.by_name:
            message = f"{one.what} says that its value is secret, and whoever may describe the job can read it"
            yield Finding(one.at, message, _instead(one))


def _instead(one: Secret) -> str:
    role = "the execution role has its own credentials" if "AWS" in one.what else "let the script fetch it"
    return f"leave it out: {role}" + ("" if "AWS" in one.what else " from AWS Secrets Manager with the execution role")
