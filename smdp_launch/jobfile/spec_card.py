"""A job's spec as a card for a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from smdp_launch.card import Row, card, lines, rows


def card_of(name: str, given: Mapping[str, Any]) -> str:
    """The card of the job called ``name``, with the fields that its file gives."""
    return card(name, rows((key, _in_lines(value)) for key, value in given.items() if value), beside="job")


def _in_lines(value: Any) -> str:
    """A value for people: a line for each thing that a mapping holds, however deep."""
    return lines(list(_leaves("", value))) if isinstance(value, dict) else _shown(value)


def _leaves(above: str, value: dict[str, Any]) -> Iterator[Row]:
    for key, one in value.items():
        name = f"{above}.{key}" if above else key
        if isinstance(one, dict) and one:
            yield from _leaves(name, one)
        else:
            yield name, _shown(one)


def _shown(value: Any) -> str:
    return ", ".join(_shown(one) for one in value) if isinstance(value, list) else str(value)
