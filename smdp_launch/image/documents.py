"""JSON from a registry, which may be anybody's: bounded, checked, and typed before it is believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_LONGEST_TEXT = 4096  # characters of one value; longer ones are cut


class BadDocument(Exception):
    """What the registry sent is not what it should be."""


def parse(data: bytes, what: str) -> Mapping[str, Any]:
    """The JSON object in ``data``.

    Raises:
        BadDocument: no JSON object; nesting that is too deep counts as that.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadDocument(f"{what} is not JSON") from None
    if not isinstance(found, dict):
        raise BadDocument(f"{what} is not a JSON object")
    return found


def section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object at ``name``, empty where there is none."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def entries(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects in the list at ``name``."""
    found = document.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def text(document: Mapping[str, Any], name: str) -> str:
    """The text at ``name``, safe for a terminal; empty where there is none."""
    return printable(document.get(name))


def texts(document: Mapping[str, Any], name: str) -> list[str]:
    found = document.get(name)
    return [printable(one) for one in found if isinstance(one, str)] if isinstance(found, list) else []


def amount(document: Mapping[str, Any], name: str) -> int:
    """The count at ``name``, 0 where there is none that makes sense."""
    found = document.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 1 << 63 else 0


def printable(value: object) -> str:
    """Text without control characters, which could steer a terminal, and of bounded length."""
    if not isinstance(value, str):
        return ""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in value[:_LONGEST_TEXT])
