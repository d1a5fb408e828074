"""Recognizes secrets by their form, or by the name of a value, and replaces them by asterisks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

#: A description, and the pattern of the form; the first group, if there is one, is the secret.
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
# Every form contains one of these; most text contains none.
_HINT = re.compile(
    r"(?:AKIA|ASIA|ABIA|ACCA|-----BEGIN|gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox|hooks\.slack|AIza|pypi-|npm_|local-"
    r"|wandb_v|eyJ|://)"
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ALONE = {"password", "passwd", "passphrase", "secret", "token", "credential", "credentials", "apikey", "pwd"}
_PAIRS = {("api", "key"), ("access", "key"), ("private", "key"), ("secret", "key"), ("auth", "key")}
#: The old keys of Weights & Biases have no other form.
_HEXADECIMAL_KEY = re.compile(r"[0-9a-fA-F]{40}")
#: Words before "token" that mean a token of a tokenizer, not of an account.
_TOKENIZER = {"pad", "cls", "sep", "bos", "eos", "unk", "mask", "special", "start", "end", "stop", "image", "audio"} | {
    *("video", "prompt", "target", "text", "word", "per", "first", "last", "next", "prefix", "suffix", "placeholder"),
    *("eot", "eod", "eom", "sot", "fim", "system", "user", "assistant", "instance", "initializer", "trigger", "new"),
}
#: Values that are no secrets: a path, an address or a variable that refers to one, and a tokenizer's mark in brackets.
NO_LITERAL = re.compile(r"(?:/|\.{1,2}/|~|arn:|[a-z0-9+]+://|\$\{|<[^<>]*>$|\[[A-Z0-9_]+\]$)")
#: Characters; a shorter text is no secret.
SHORTEST = 8


def known_secrets(text: str) -> Iterator[tuple[str, str]]:
    """Yield the secrets in ``text`` that have a known form: a description and the secret itself."""
    for what, form in _FORMS if _HINT.search(text) else ():
        yield from ((what, match[match.lastindex or 0]) for match in form.finditer(text))


def without_forms(text: str) -> str:
    """The text with stars in place of every secret that has a known form."""
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


def has_secret_name(name: str, text: str) -> bool:
    """Whether ``text``, as the value of ``name``, is a secret because of the name."""
    if NO_LITERAL.match(text):
        return False
    return says_secret(name) or (name.lower().endswith("key") and _HEXADECIMAL_KEY.fullmatch(text) is not None)


def masked(name: str, text: str) -> str:
    """The value of ``name`` with stars in place of secrets."""
    return "*" * SHORTEST if has_secret_name(name, text) else without_forms(text)


def name_of(keys: Iterable[str]) -> str:
    """The name that decides about a value below these keys: the first secret name, since all values below it are
    secret; else the last key."""
    name = ""
    for key in keys:
        name = name if says_secret(name) else key
    return name


def is_number(value: object) -> bool:
    """Whether the value is a number, which can be a secret; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def named_secrets(value: Any, name: str = "") -> set[str]:
    """The secret texts and numbers, as texts, below ``value``: those with a secret name, or below a secret name."""
    if isinstance(value, dict):
        return {text for key, one in value.items() for text in named_secrets(one, name_of((name, str(key))))}
    if isinstance(value, list):
        return {text for one in value for text in named_secrets(one, name)}
    text = str(value) if isinstance(value, str) or is_number(value) else ""
    return {text} if len(text) >= SHORTEST and has_secret_name(name, text) else set()


def starred(value: Any, secrets: set[str], name: str = "") -> Any:
    """``value`` with stars in place of ``secrets``, of secrets with a known form, and of values at or below a secret
    name."""
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
