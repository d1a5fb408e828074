"""Edits of a YAML file's text: each changes one entry.

An edit changes the characters of its entry and nothing else, so all other comments, quotes and places stay. If the
text does not show what belongs to the entry, for example because of an anchor, there is no edit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from smdp_launch.diagnostics import Edit
from smdp_launch.edits import Lines
from smdp_launch.jobfile.yaml import text as yaml_text
from smdp_launch.jobfile.yaml.new_value import as_json, compose, json_text, with_quotes

#: The place of a value: keys of mappings and indices of lists, from the top.
Location = tuple[str | int, ...]
Edits = tuple[Edit, ...]

#: A reference to a variable that is not escaped: the text is not the value.
_VARIABLE = re.compile(r"(?<!\$)\$\{")
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)
_REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)")
_REST_AFTER_COMMA = re.compile(r"[ \t]*,?[ \t]*(?:(?<=[\s,])#[^\r\n]*)?(?=[\r\n]|\Z)")
_ONLY_COMMA = re.compile(r"[ \t]*,?[ \t]*(?=[\r\n])")
_NEWLINE = re.compile(r"\r\n|\r|\n")
_DASH = re.compile(r"[ \t]*-[ \t]+")


class Slot(NamedTuple):
    """One entry of a mapping or item of a list.

    Args:
        key: None for an item.
        position: among the entries of its mapping or list.
        shared: whether the value, or something around it, has an anchor, so that other places show the same text.
    """

    key: Node | None
    value: Node
    parent: Node
    position: int
    shared: bool

    @property
    def siblings(self) -> list[tuple[Node | None, Node]]:
        """All entries of its parent, itself included."""
        return children(self.parent)


class Layout:
    """The text of one file and the nodes that were read from it."""

    def __init__(self, file: str, text: str, root: MappingNode) -> None:
        self.file = file
        self.text = text
        self._root = root

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self.text)

    @cached_property
    def _newline(self) -> str:
        match = _NEWLINE.search(self.text)
        return match[0] if match is not None else "\n"

    @cached_property
    def _slots(self) -> dict[Location, Slot]:
        return dict(walk(self._root, (), shared=self._root.anchor is not None))

    @cached_property
    def _anchored(self) -> set[Location]:
        """The entries with an anchor anywhere in them: to remove one would break the references to its anchor."""
        anchored = [at for at, slot in self._slots.items() if slot.value.anchor is not None]
        return {at[:length] for at in anchored for length in range(1, len(at) + 1)}

    def range(self, location: Location, *, on_key: bool = False) -> tuple[int, int] | None:
        """The offsets of the value at ``location``, or of its key; None if they are not known."""
        slot = self._slots.get(location)
        node = None if slot is None else slot.key if on_key else slot.value
        end = None if slot is None or node is None else self._end(slot.key if node is slot.value else None, node)
        return None if node is None or end is None else (node.start_mark.index, end)

    def is_in_flow(self, location: Location) -> bool:
        """Whether the entry at ``location`` is between braces or brackets."""
        slot = self._slots.get(location)
        return slot is not None and is_flow(slot.parent)

    @cached_property
    def _is_json(self) -> bool:
        """Whether the file is JSON. JSON is YAML too, but other programs may read the file as JSON."""
        try:
            return isinstance(json.loads(self.text), dict)
        except (ValueError, RecursionError):
            return False

    # -- replace -------------------------------------------------------------------------------------------------

    def replace(self, location: Location, new: str) -> Edits:
        """Replace the value at ``location`` with ``new``, one line of YAML."""
        slot = self._slots.get(location)
        if slot is None or slot.shared or (isinstance(slot.value, ScalarNode) and _VARIABLE.search(slot.value.value)):
            return ()
        start, end = slot.value.start_mark.index, self._end(slot.key, slot.value)
        if end is None or start == end:
            return ()
        written = self._value_text(new, slot.value, in_flow=is_flow(slot.parent))
        if written is None:
            return ()
        if slot.key is not None and is_block(slot.value):
            start, written = self.text.index(":", slot.key.end_mark.index) + 1, f" {written}"
        may_contain_comment = isinstance(slot.value, CollectionNode) or is_block_text(slot.value)
        if may_contain_comment and not self._is_json and _COMMENT.search(self.text, start, end):
            return ()
        return self._edit(start, end, written)

    def rename(self, location: Location, new: str) -> Edits:
        """Replace the key at ``location`` with ``new``, as YAML; no edit if its mapping has that key already."""
        slot = self._slots.get(location)
        if slot is None or slot.key is None or slot.key.anchor is not None:
            return ()
        node = compose(new)
        if node is None or (*location[:-1], str(node.value)) in self._slots:
            return ()
        return self.replace_key(slot.key, new, in_flow=is_flow(slot.parent))

    def replace_key(self, key: Node, new: str, *, in_flow: bool = True) -> Edits:
        if not isinstance(key, ScalarNode) or key.anchor is not None:
            return ()
        written = self._value_text(new, key, in_flow=in_flow)
        return self._edit(key.start_mark.index, key.end_mark.index, written) if written is not None else ()

    def _value_text(self, new: str, old: Node, *, in_flow: bool) -> str | None:
        """``new`` as this file writes it in place of ``old``; None if the file is JSON and cannot represent it."""
        return as_json(new) if self._is_json else with_quotes(new, old, in_flow=in_flow)

    # -- remove --------------------------------------------------------------------------------------------------

    def remove(self, location: Location) -> Edits:
        """Remove the entry or item at ``location``, with its lines or its comma, and a parent that becomes empty."""
        slot = self._slots.get(location)
        if slot is None or slot.shared or location in self._anchored:
            return ()
        if len(slot.siblings) == 1:
            return self.remove(location[:-1])
        return self._without(slot)

    def remove_repeated(self, parent: MappingNode, index: int) -> Edits:
        """Remove the entry if its text is the text of an earlier entry with the same key."""
        key, value = parent.value[index]
        first = next(one for one in parent.value if one[0].value == key.value)
        texts = [self.text[one.start_mark.index : self._end(name, one) or 0] for name, one in (first, (key, value))]
        # The same anchor or alias may have another meaning at another place.
        if texts[0] != texts[1] or not texts[0] or re.search(r"[&*]", texts[0]):
            return ()
        return self._without(Slot(key, value, parent, index, shared=False))

    def remove_tag(self, node: Node) -> Edits:
        start: int = node.start_mark.index
        tag = re.compile(r"!\S*[ \t]+").match(self.text, start)
        return self._edit(start, tag.end(), "") if tag is not None else ()

    def _without(self, slot: Slot) -> Edits:
        span = self._flow_entry(slot) if is_flow(slot.parent) else self._block_entry(slot)
        return self._edit(*span, "") if span is not None else ()

    def _flow_entry(self, slot: Slot) -> tuple[int, int] | None:
        entries = slot.siblings
        start, end = start_of(slot.key, slot.value), self._end(slot.key, slot.value)
        last = slot.position == len(entries) - 1
        neighbour = self._end(*entries[slot.position - 1]) if last else start_of(*entries[slot.position + 1])
        if end is None or neighbour is None:
            return None
        gap = self.text[neighbour:start] if last else self.text[end:neighbour]
        if self._is_json or not _NEWLINE.search(gap):  # JSON has one comma between two entries, and no comments
            return (neighbour, end) if last else (start, neighbour)
        lines = self._whole_lines(start, end, _REST_AFTER_COMMA)
        if lines is not None:
            return lines
        comma = re.compile(r"[ \t]*,[ \t]*").match(self.text, end)
        return start, comma.end() if comma is not None else end

    def _block_entry(self, slot: Slot) -> tuple[int, int] | None:
        start, end = start_of(slot.key, slot.value), self._end(slot.key, slot.value)
        if end is None:
            return None
        if slot.key is None:
            return self._whole_lines(start, end, _REST_OF_LINE, before=_DASH)
        lines = self._whole_lines(start, end, _REST_OF_LINE)
        if lines is not None or slot.position > 0:
            return lines
        # The first key after the dash of an item: the next one takes its place.
        following = start_of(*slot.siblings[1])
        return (start, following) if not _COMMENT.search(self.text, end, following) else None

    def _whole_lines(
        self, start: int, end: int, rest: re.Pattern[str], before: re.Pattern[str] = re.compile(r"[ \t]*")
    ) -> tuple[int, int] | None:
        """The offsets from the start of the first line to the end of the last, if the lines contain nothing else."""
        first = max(self.text.rfind("\n", 0, start), self.text.rfind("\r", 0, start)) + 1
        after = rest.match(self.text, end)
        if before.fullmatch(self.text, first, start) is None or after is None:
            return None
        newline = _NEWLINE.match(self.text, after.end())
        if newline is not None:
            return first, newline.end()
        # The file does not end with a newline, before the edit and after it.
        return max(0, first - len(self._newline)), after.end()

    # -- add -----------------------------------------------------------------------------------------------------

    def add(self, location: Location, new: str, order: Sequence[str] = ()) -> Edits:
        """Add an entry at ``location`` with ``new``, one line of YAML, as its value.

        Args:
            order: the known keys of the mapping in their usual order.
        """
        *above, name = location
        parent = self._slots.get(tuple(above))
        node = self._root if not above else parent.value if parent is not None else None
        if not isinstance(name, str) or (above and (parent is None or parent.shared)) or node is None:
            return ()
        in_flow = parent is not None and is_flow(node)
        key = json_text(name) if self._is_json else yaml_text.key(name)
        written = self._value_text(new, node, in_flow=in_flow)
        if written is None:
            return ()
        entry = f"{key}: {written}"
        if parent is not None and parent.key is not None and is_empty(node):
            colon = self.text.find(":", parent.key.end_mark.index)
            return self._edit(colon + 1, colon + 1, f" {{{entry}}}") if colon >= 0 else ()
        if not isinstance(node, MappingNode) or node.anchor is not None:
            return ()
        at = _place_among([str(key.value) for key, _ in node.value], name, order)
        return self._add_in_flow(node, entry, at) if is_flow(node) else self._add_in_block(node, entry, at)

    def _add_in_flow(self, node: MappingNode, entry: str, at: int) -> Edits:
        if not node.value:
            start = node.start_mark.index
            return self._edit(start + 1, start + 1, entry) if self.text[start] == "{" else ()
        start = start_of(*node.value[max(0, at - 1)])
        if at == 0:
            return self._edit(start, start, f"{entry},{self._gap(start, start)}")
        end = self._end(*node.value[at - 1])
        return self._edit(end, end, f",{self._gap(start, end)}{entry}") if end is not None else ()

    def _gap(self, start: int, end: int) -> str:
        """The text between a new entry and the one from ``start`` to ``end``: a new line if that entry has its own."""
        before = self.text[self.text.rfind("\n", 0, start) + 1 : start]
        is_alone = not before.strip() and (start == end or _ONLY_COMMA.match(self.text, end) is not None)
        return f"{self._newline}{before}" if is_alone else " "

    def _add_in_block(self, node: MappingNode, entry: str, at: int) -> Edits:
        start = node.start_mark.index
        indent = " " * (self._lines.position(start)[1] - 1)
        if at == 0:
            return self._edit(start, start, f"{entry}{self._newline}{indent}")
        end = self._end(*node.value[at - 1])
        rest = _REST_OF_LINE.match(self.text, end) if end is not None else None
        return self._edit(rest.end(), rest.end(), f"{self._newline}{indent}{entry}") if rest is not None else ()

    # -- places --------------------------------------------------------------------------------------------------

    def _end(self, key: Node | None, value: Node) -> int | None:
        """The offset after the last character of a value; None if its marks do not show it."""
        if value.anchor is not None and (key is None or value.start_mark.index < key.end_mark.index):
            return None  # an alias, or an item that may be an alias: the marks are those of the anchor
        if is_empty(value):
            colon = self.text.find(":", key.end_mark.index) if key is not None else -1
            is_next = colon >= 0 and not self.text[key.end_mark.index : colon].strip() if key is not None else False
            return colon + 1 if is_next else None
        if not is_block(value):
            end: int = value.end_mark.index
            return len(self.text[:end].rstrip()) if is_block_text(value) else end
        return self._end(*children(value)[-1])

    def _edit(self, start: int, end: int, new: str) -> Edits:
        return (Edit(self.file, *self._lines.position(start), *self._lines.position(end), new),)


def _place_among(present: Sequence[str], name: str, order: Sequence[str]) -> int:
    """The number of ``present`` entries that come before the new one."""
    if name not in order:
        return len(present)
    before = set(order[: order.index(name)])
    return max((index + 1 for index, one in enumerate(present) if one in before), default=0)


def walk(node: Node, at: Location, *, shared: bool) -> Iterator[tuple[Location, Slot]]:
    """Every entry below ``node``, except those below an anchor: other places show the same text."""
    seen: set[str] = set()
    for index, (key, value) in enumerate(children(node)):
        if key is not None and (not isinstance(key, ScalarNode) or key.value in seen or is_merge_key(key)):
            continue
        seen.update([str(key.value)] if key is not None else [])
        here = (*at, index if key is None else str(key.value))
        yield here, Slot(key, value, node, index, shared or value.anchor is not None)
        if isinstance(value, CollectionNode) and value.anchor is None:
            yield from walk(value, here, shared=shared)


def children(node: Node) -> list[tuple[Node | None, Node]]:
    """Keys and values of a mapping, or None and the items of a list."""
    if isinstance(node, MappingNode):
        return list(node.value)
    return [(None, one) for one in node.value] if isinstance(node, SequenceNode) else []


def start_of(key: Node | None, value: Node) -> int:
    """The offset in the text at which an entry begins."""
    offset: int = (value if key is None else key).start_mark.index
    return offset


def is_flow(node: Node) -> bool:
    return isinstance(node, CollectionNode) and bool(node.flow_style)


def is_block(node: Node) -> bool:
    return isinstance(node, CollectionNode) and not node.flow_style


def is_block_text(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.style in {"|", ">"}


def is_empty(node: Node) -> bool:
    """Whether the text has nothing where the value would be."""
    return isinstance(node, ScalarNode) and node.start_mark.index == node.end_mark.index


def is_merge_key(key: Node) -> bool:
    return isinstance(key, ScalarNode) and key.value == "<<" and key.style is None
