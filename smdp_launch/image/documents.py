"""JSON from a registry, which is untrusted input: sizes are bounded, and types are checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_LONGEST_TEXT = 4096  # characters of one value; longer ones are cut


class BadDocument(Exception):
    """The registry sent something else than the expected JSON object."""


def parse(data: bytes, what: str) -> Mapping[str, Any]:
    """The JSON object in ``data``.

    Raises:
        BadDocument: it is not a JSON object, or nested too deeply.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise BadDocument(f"{what} is not JSON") from None
    if not isinstance(document, dict):
        raise BadDocument(f"{what} is not a JSON object")
    return document


def section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object at ``name``; empty if there is none."""
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def entries(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects in the list at ``name``."""
    value = document.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text(document: Mapping[str, Any], name: str) -> str:
    """The text at ``name``, safe for a terminal; empty if there is none."""
    return printable(document.get(name))


def texts(document: Mapping[str, Any], name: str) -> list[str]:
    value = document.get(name)
    return [printable(one) for one in value if isinstance(one, str)] if isinstance(value, list) else []


def amount(document: Mapping[str, Any], name: str) -> int:
    """The count at ``name``; 0 if it is missing or not valid."""
    value = document.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else 0


def printable(value: object) -> str:
    """The text without control characters, which a terminal would interpret, and with bounded length."""
    if not isinstance(value, str):
        return ""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value[:_LONGEST_TEXT])
