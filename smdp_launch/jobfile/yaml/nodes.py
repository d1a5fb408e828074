"""Helpers for YAML nodes: their children, their form, and the place of each in a tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

#: The place of a value: keys of mappings and indices of lists, from the top.
Location = tuple[str | int, ...]


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
