"""Small errors, one at a time, at every place of a job file's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

Location = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """One entry of a mapping or list in the text; all numbers are offsets into the text.

    Args:
        start: of the key, or of the item.
        key_end: the end of the key; equal to ``start`` for an item.
        value: the start and end of the value, with its quotes.
        scalar: the value's kind (``str``, ``int``, ``float``, ``bool``, ``null``); None for a list or mapping.
        flow: whether it is between brackets or braces.
        next_value: the value of the next entry, if both are scalars.
        first_item: the text of a list's first item, if that is a scalar.
    """

    at: Location
    text: str
    start: int
    key_end: int
    value: tuple[int, int]
    scalar: str | None
    flow: bool
    next_value: tuple[int, int] | None = None
    first_item: str | None = None

    @property
    def written(self) -> str:
        return self.text[slice(*self.value)]

    @property
    def key(self) -> str:
        return self.text[self.start : self.key_end]

    @property
    def plain(self) -> str:
        """The scalar without its quotes."""
        return self.written[1:-1] if self.quoted else self.written

    @property
    def quoted(self) -> bool:
        return self.written[:1] in {'"', "'"}

    def line(self, offset: int) -> int:
        return 1 + self.text.count("\n", 0, offset)


@dataclass(frozen=True)
class Mutant:
    """A changed text.

    Args:
        lines: the changed lines, counted in the changed text; empty for a removed entry.
    """

    operator: str
    at: Location
    text: str
    lines: range


def mutants(text: str) -> Iterator[Mutant]:
    """Every operator at every place of ``text`` where it changes something."""
    for place in places(text):
        for operator in OPERATORS:
            for made, lines in operator(place):
                if made != text:
                    yield Mutant(operator.__name__.strip("_"), place.at, made, lines)


def places(text: str) -> list[Place]:
    """All entries but those with an anchor or alias: a change of one is a change of several."""
    root = YAML(typ="safe", pure=True).compose(text)
    return list(_places(root, text, (), flow=False))


def _places(node: Node, text: str, at: Location, flow: bool) -> Iterator[Place]:
    flow = flow or text[node.start_mark.index] in "[{"
    entries = _entries(node)
    for number, (part, key, value) in enumerate(entries):
        following = entries[number + 1][2] if number + 1 < len(entries) else None
        start = (key or value).start_mark.index
        if value.start_mark.index >= start and text[value.start_mark.index] not in "&*":
            both_scalar = isinstance(value, ScalarNode) and isinstance(following, ScalarNode)
            yield Place(
                (*at, part),
                text,
                start,
                key.end_mark.index if key is not None else start,
                _extent(value, text),
                value.tag.rpartition(":")[2] if isinstance(value, ScalarNode) else None,
                flow,
                _extent(following, text) if both_scalar else None,
                _first_item(value, text),
            )
        if value.start_mark.index >= start:
            yield from _places(value, text, (*at, part), flow)


def _entries(node: Node) -> list[tuple[str | int, Node | None, Node]]:
    if isinstance(node, MappingNode):
        return [(str(key.value), key, value) for key, value in node.value]
    return [(number, None, one) for number, one in enumerate(node.value)] if isinstance(node, SequenceNode) else []


def _first_item(node: Node, text: str) -> str | None:
    first = node.value[0] if isinstance(node, SequenceNode) and node.value else None
    return text[slice(*_extent(first, text))] if isinstance(first, ScalarNode) else None


def _extent(node: Any, text: str) -> tuple[int, int]:
    """The start and end, without the spaces and comments that YAML counts as the end of a block."""
    start, end = node.start_mark.index, node.end_mark.index
    while (bare := re.sub(r"\n[ \t]*(#[^\n]*)?$", "", text[start:end].rstrip())) != text[start:end]:
        end = start + len(bare)
    return start, end


# --- the operators: each yields texts with their changed lines ---

Mutations = Iterator[tuple[str, range]]
Operator = Callable[[Place], Mutations]


def _with_value(place: Place, written: str) -> tuple[str, range]:
    """Another value, on the key's own line."""
    between = ": " if place.key else ""
    before = place.text[: place.key_end] + between
    first = place.line(place.start)
    return before + written + place.text[place.value[1] :], range(first, first + 1 + written.count("\n"))


def _with_key(place: Place, written: str) -> tuple[str, range]:
    first = place.line(place.start)
    return place.text[: place.start] + written + place.text[place.key_end :], range(first, first + 1)


def _whole(place: Place) -> tuple[int, int]:
    """The start and end of the entry with its line or its separator."""
    start, end, text = place.start, place.value[1], place.text
    if not place.flow:
        start = text.rfind("\n", 0, start) + 1
        return start, min(text.find("\n", end) % (len(text) + 1) + 1, len(text))
    after = re.compile(r"\s*,\s*").match(text, end)
    if after:
        return start, after.end()
    before = re.search(r"\s*,\s*$", text[:start])
    return (before.start() if before else start), end


def delete(place: Place) -> Mutations:
    start, end = _whole(place)
    yield place.text[:start] + place.text[end:], range(0)


def duplicate(place: Place) -> Mutations:
    start, end = _whole(place)
    entry = place.text[start:end]
    lines = range(place.line(place.start), place.line(place.value[1]) + 1 + entry.count("\n"))
    if place.flow:
        entry = place.text[place.start : place.value[1]] + ", "
        start = place.start
    yield place.text[:start] + entry + place.text[start:], lines


def empty(place: Place) -> Mutations:
    yield _with_value(place, "")


def null(place: Place) -> Mutations:
    yield _with_value(place, "null")


def empty_text(place: Place) -> Mutations:
    yield _with_value(place, '""')
    yield _with_value(place, '" "')


def retype(place: Place) -> Mutations:
    """Replace a value by one of every other kind."""
    kinds = {"str": "thing", "int": "7", "float": "2.5", "bool": "true", "list": "[]", "mapping": "{}"}
    for kind, written in kinds.items():
        if kind != place.scalar:
            yield _with_value(place, written)


def into_list(place: Place) -> Mutations:
    if place.scalar is not None:
        yield _with_value(place, f"[{place.written}]")


def into_mapping(place: Place) -> Mutations:
    if place.scalar is not None:
        yield _with_value(place, f"{{value: {place.written}}}")


def out_of_list(place: Place) -> Mutations:
    """Replace a list by its first item."""
    if place.first_item is not None:
        yield _with_value(place, place.first_item)


def above(place: Place) -> Mutations:
    if place.scalar in {"int", "float"}:
        for written in ("10000000000", "1e300", "9" * 90):
            yield _with_value(place, written)


def below(place: Place) -> Mutations:
    if place.scalar in {"int", "float"}:
        for written in ("0", "-1", "-10000000000"):
            yield _with_value(place, written)


def not_finite(place: Place) -> Mutations:
    if place.scalar in {"int", "float"}:
        for written in (".nan", ".inf"):
            yield _with_value(place, written)


def too_long(place: Place) -> Mutations:
    if place.scalar == "str":
        yield _with_value(place, f'"{place.plain.replace(chr(92), "")}{"x" * 5000}"')


def too_many(place: Place) -> Mutations:
    """More entries than any list or mapping may have."""
    if place.scalar is None:
        items = ", ".join(f"x{number}" for number in range(120))
        yield _with_value(place, f"[{items}]")
        yield _with_value(place, "{" + items.replace(",", ": x,") + ": x}")


def typo_in_key(place: Place) -> Mutations:
    name = place.key.strip("\"'")
    if name:
        yield _with_key(place, place.key.replace(name, name[1:] or "q"))
        middle = len(name) // 2
        yield _with_key(place, place.key.replace(name, name[:middle] + "q" + name[middle:]))


def typo_in_value(place: Place) -> Mutations:
    if place.scalar == "str" and len(place.plain) > 2:
        for at in {1, len(place.plain) // 2, len(place.plain) - 1}:
            swapped = place.plain[: at - 1] + place.plain[at] + place.plain[at - 1] + place.plain[at + 1 :]
            yield _with_value(place, place.written.replace(place.plain, swapped))
        yield _with_value(place, place.written.replace(place.plain, place.plain[:-1]))


def case_of_key(place: Place) -> Mutations:
    if place.key:
        yield _with_key(place, place.key.upper())
        yield _with_key(place, place.key.title())


def case_of_value(place: Place) -> Mutations:
    if place.scalar is not None:
        yield _with_value(place, place.written.upper())
        yield _with_value(place, place.written.swapcase())


def quote(place: Place) -> Mutations:
    if place.scalar is not None and not place.quoted:
        yield _with_value(place, f'"{place.written}"')


def unquote(place: Place) -> Mutations:
    if place.quoted:
        yield _with_value(place, place.plain)


def half_quoted(place: Place) -> Mutations:
    if place.scalar is not None:
        yield _with_value(place, f'"{place.plain}')


def swap(place: Place) -> Mutations:
    """Swap the values of two neighbours."""
    if place.next_value is not None:
        (start, end), (other_start, other_end) = place.value, place.next_value
        between, other = place.text[end:other_start], place.text[other_start:other_end]
        made = place.text[:start] + other + between + place.written + place.text[other_end:]
        yield made, range(place.line(start), place.line(other_start) + 1)


def odd_character(place: Place) -> Mutations:
    """Letters outside ASCII, invisible and control characters, a line break, and halves of surrogate pairs."""
    if place.scalar == "str" and "'" not in place.written and "\\" not in place.written:
        for written in ("ü", "\u200b", "\\a", "\\n", "\\0", "\\ud800", "😀"):
            yield _with_value(place, f'"{place.plain[:-1]}{written}{place.plain[-1:]}"')
        yield _with_value(place, f"{place.plain[:-1]}\x07{place.plain[-1:]}")


def shift(place: Place) -> Mutations:
    """One space more, or one less, before the first line of the entry."""
    if not place.flow and place.key:
        begin = place.text.rfind("\n", 0, place.start) + 1
        lines = range(place.line(place.start), place.line(place.start) + 1)
        yield place.text[:begin] + " " + place.text[begin:], lines
        if place.text[begin] == " ":
            yield place.text[:begin] + place.text[begin + 1 :], lines
            yield place.text[:begin] + "\t" + place.text[begin:].lstrip(" "), lines


def no_colon(place: Place) -> Mutations:
    if place.key:
        first = place.line(place.start)
        yield place.text[: place.key_end] + place.text[place.key_end + 1 :], range(first, first + 1)
        yield place.text[: place.key_end + 1] + place.text[place.key_end + 2 :], range(first, first + 1)


def unset_variable(place: Place) -> Mutations:
    if place.scalar is not None:
        yield _with_value(place, '"${NOT_SET_ANYWHERE}"')


OPERATORS: tuple[Operator, ...] = (
    delete,
    duplicate,
    empty,
    null,
    empty_text,
    retype,
    into_list,
    into_mapping,
    out_of_list,
    above,
    below,
    not_finite,
    too_long,
    too_many,
    typo_in_key,
    typo_in_value,
    case_of_key,
    case_of_value,
    quote,
    unquote,
    half_quoted,
    swap,
    odd_character,
    shift,
    no_colon,
    unset_variable,
)
