"""Secrets in a job file. They would be readable for everybody who may describe the job, so both kinds are errors.

A secret is known by its form, or by the name of the value it is given as.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from smdp_launch.diagnostics import Span
from smdp_launch.jobfile.yaml.document import Document, Location
from smdp_launch.rules.base.facts import Facts, Finding, rule
from smdp_launch.secret_forms import NO_LITERAL, SHORTEST, is_number, known_secrets, name_of, says_secret


class Secret(NamedTuple):
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
    yield from (Secret(at, what, text, span, on_key=on_key) for what, text in known_secrets(value))


def _texts(value: Any, at: Location) -> Iterator[tuple[Location, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _texts(one, (*at, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _texts(one, (*at, index))
    elif isinstance(value, str):
        yield at, value
    elif is_number(value):
        yield at, str(value)


def _secrets(document: Document, at: Location, value: str) -> Iterator[Secret]:
    entry = document.entry(at)
    found = list(_of_known_form(at, value, entry.value))
    yield from found
    name = name_of(one for one in at if isinstance(one, str))
    # A variable of this machine is no way out: what it holds would stand in the request.
    if not found and not NO_LITERAL.match(value) and len(value) >= SHORTEST and says_secret(name):
        yield Secret(at, name, value, entry.value, by_name=True)


@rule("SMDP701")
def known_forms(facts: Facts) -> Iterator[Finding]:
    for one in find(facts.document):
        if not one.by_name:
            message = f"this is {one.what}, which whoever may describe the job can read"
            yield Finding(one.at, message, _instead(one), on_key=one.on_key, remove=_is_not_needed(one))


@rule("SMDP702")
def secret_names(facts: Facts) -> Iterator[Finding]:
    for one in find(facts.document):
        if one.by_name:
            message = f"{one.what} says that its value is secret, and whoever may describe the job can read it"
            yield Finding(one.at, message, _instead(one), remove=_is_not_needed(one))


def _is_not_needed(one: Secret) -> bool:
    """Whether the job does without it: only that of AWS, and only where nothing else stands with it."""
    return "AWS" in one.what and one.at[0] == "environment" and not one.on_key


def _instead(one: Secret) -> str:
    role = "the execution role has its own credentials" if "AWS" in one.what else "let the script fetch it"
    return f"leave it out: {role}" + ("" if "AWS" in one.what else " from AWS Secrets Manager with the execution role")
