"""What a secret looks like: by its form, or by the name of the value that it is given as."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

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
    *("eot", "eod", "eom", "sot", "fim", "system", "user", "assistant", "instance", "initializer", "trigger", "new"),
}
#: A path, an address or a variable: it says where something is, and is not it. And a tokenizer's mark in brackets.
NO_LITERAL = re.compile(r"(?:/|\.{1,2}/|~|arn:|[a-z0-9+]+://|\$\{|<[^<>]*>$|\[[A-Z0-9_]+\]$)")
#: Characters. Nothing shorter keeps anybody out.
SHORTEST = 8


def known_secrets(text: str) -> Iterator[tuple[str, str]]:
    """What has the form of a secret in ``text``: what it is, and the secret itself."""
    for what, form in _FORMS if _HINT.search(text) else ():
        yield from ((what, match[match.lastindex or 0]) for match in form.finditer(text))


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


def masked(name: str, text: str) -> str:
    """The value of ``name`` as it may be shown."""
    return "*" * SHORTEST if says_secret(name) and not NO_LITERAL.match(text) else without_forms(text)


def name_of(keys: Iterable[str]) -> str:
    """The name of a value below these keys of mappings: all that stands below a secret's name is secret."""
    name = ""
    for key in keys:
        name = name if says_secret(name) else key
    return name


def is_number(value: object) -> bool:
    """A number is a secret as a text is; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def named_secrets(value: Any, name: str = "") -> set[str]:
    """The texts and numbers, as texts, below ``value`` whose names, or names above them, say that they are secret."""
    if isinstance(value, dict):
        return {text for key, one in value.items() for text in named_secrets(one, name_of((name, str(key))))}
    if isinstance(value, list):
        return {text for one in value for text in named_secrets(one, name)}
    text = str(value) if isinstance(value, str) or is_number(value) else ""
    return {text} if len(text) >= SHORTEST and says_secret(name) and not NO_LITERAL.match(text) else set()


def starred(value: Any, secrets: set[str], name: str = "") -> Any:
    """``value`` without ``secrets``, and without what has a secret's form, or stands at or below a secret's name."""
    if isinstance(value, dict):
        return {key: starred(one, secrets, name_of((name, str(key)))) for key, one in value.items()}
    if isinstance(value, list):
        return [starred(one, secrets, name) for one in value]
    if is_number(value):
        text = str(value)
        return "*" * SHORTEST if text in secrets or says_secret(name) else value
    if not isinstance(value, str):
        return value
    for one in sorted(secrets, key=len, reverse=True):
        value = value.replace(one, "*" * SHORTEST)
    return masked(name, value)
