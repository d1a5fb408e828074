"""Secrets in a job file. Everyone with permission to describe the job can read them, so they are errors.

A secret is recognised by its form, or by the name of the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from smdp_launch.diagnostics import Span
from smdp_launch.jobfile.yaml.document import Document, Location
from smdp_launch.rules.base.facts import Facts, Problem, rule
from smdp_launch.secret_forms import SHORTEST, has_secret_name, is_number, known_secrets, name_of

#: Its value names a variable. An address in its place is a secret.
WEBHOOK: Location = ("notify", "webhook")
_READABLE = "everyone with permission to describe the job can read it"


class Secret(NamedTuple):
    """One secret.

    Args:
        what: its kind, or the name of the value.
        by_name: it is recognised only by its name.
        on_key: it is a key, not a value.
    """

    at: Location
    what: str
    text: str
    span: Span
    by_name: bool = False
    on_key: bool = False


def find(document: Document) -> list[Secret]:
    """Every secret in the document. The document may have schema errors."""
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
    if at == WEBHOOK and "://" in value:
        yield Secret(at, "the address of a webhook", value, entry.value)
        return
    by_form = list(_of_known_form(at, value, entry.value))
    yield from by_form
    name = name_of(one for one in at if isinstance(one, str))
    # The values of local variables are checked too: they are written to the request.
    if not by_form and len(value) >= SHORTEST and has_secret_name(name, value):
        yield Secret(at, name, value, entry.value, by_name=True)


@rule("SMDP701")
def known_forms(facts: Facts) -> Iterator[Problem]:
    for one in find(facts.document):
        if not one.by_name:
            message = f"this is {one.what}; {_READABLE}"
            yield Problem(one.at, message, _help(one), on_key=one.on_key, remove=_is_not_needed(one))


@rule("SMDP702")
def secret_names(facts: Facts) -> Iterator[Problem]:
    for one in find(facts.document):
        if one.by_name:
            message = f"{one.what} is the name of a secret; {_READABLE}"
            yield Problem(one.at, message, _help(one), remove=_is_not_needed(one))


def _is_not_needed(one: Secret) -> bool:
    """Whether the job works without it: an environment variable with a secret of AWS."""
    return "AWS" in one.what and one.at[0] == "environment" and not one.on_key


def _help(one: Secret) -> str:
    if one.at == WEBHOOK:
        return "set an environment variable to the address, and write its name, such as `webhook: TEAM_WEBHOOK`"
    if "AWS" in one.what:
        return "remove it: the execution role has its own credentials"
    return "remove it, and let the script read it from AWS Secrets Manager with the execution role"
