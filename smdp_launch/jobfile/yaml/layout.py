"""Where the entries of a YAML file stand in its text, and the edits that change one of them.

An edit touches the characters of its entry and nothing else, so comments, quotes and order of the rest stay. Where the
text does not say clearly what belongs to the entry, such as with an anchor that others refer to, there is no edit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from smdp_launch.diagnostics import Edit
from smdp_launch.edits import Lines
from smdp_launch.jobfile.yaml import text as yaml_text
from smdp_launch.jobfile.yaml.yaml12 import kind_of

#: As in ``document``, which imports this module.
Location = tuple[str | int, ...]
Edits = tuple[Edit, ...]

_STRING = "tag:yaml.org,2002:str"
#: A reference to a variable that is not escaped: the file says less than the value.
_VARIABLE = re.compile(r"(?<!\$)\$\{")
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)
_REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?=[\r\n]|\Z)")
_REST_BEHIND_COMMA = re.compile(r"[ \t]*,?[ \t]*(?:(?<=[\s,])#[^\r\n]*)?(?=[\r\n]|\Z)")
_ONLY_COMMA = re.compile(r"[ \t]*,?[ \t]*(?=[\r\n])")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NEWLINE = re.compile(r"\r\n|\r|\n")
_DASH = re.compile(r"[ \t]*-[ \t]+")


class _Slot(NamedTuple):
    """One entry of a mapping or item of a list.

    Args:
        key: None for an item.
        position: among the entries of the mapping or list that it is in.
        shared: an anchor holds the value, or something around it, so that other places show what is written there.
    """

    key: Node | None
    value: Node
    parent: Node
    position: int
    shared: bool

    @property
    def beside(self) -> list[tuple[Node | None, Node]]:
        return _children(self.parent)


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
        found = _NEWLINE.search(self.text)
        return found[0] if found is not None else "\n"

    @cached_property
    def _slots(self) -> dict[Location, _Slot]:
        return dict(_walk(self._root, (), shared=self._root.anchor is not None))

    @cached_property
    def _anchored(self) -> set[Location]:
        """The entries that hold an anchor somewhere: what others refer to would go with them."""
        found = [at for at, slot in self._slots.items() if slot.value.anchor is not None]
        return {at[:length] for at in found for length in range(1, len(at) + 1)}

    def range(self, location: Location, *, on_key: bool = False) -> tuple[int, int] | None:
        """The offsets of the value at ``location``, or of its key; None where they are not known."""
        slot = self._slots.get(location)
        node = None if slot is None else slot.key if on_key else slot.value
        end = None if slot is None or node is None else self._end(slot.key if node is slot.value else None, node)
        return None if node is None or end is None else (node.start_mark.index, end)

    @cached_property
    def _is_json(self) -> bool:
        """JSON is YAML too, but other programs may read the file as JSON."""
        try:
            return isinstance(json.loads(self.text), dict)
        except (ValueError, RecursionError):
            return False

    # -- write something else ------------------------------------------------------------------------------------

    def replace(self, location: Location, new: str) -> Edits:
        """``new``, one line of YAML, in place of the value at ``location``."""
        slot = self._slots.get(location)
        if slot is None or slot.shared or (isinstance(slot.value, ScalarNode) and _VARIABLE.search(slot.value.value)):
            return ()
        start, end = slot.value.start_mark.index, self._end(slot.key, slot.value)
        if end is None or start == end:
            return ()
        fitted = self._fitted(new, slot.value, in_flow=_is_flow(slot.parent))
        if fitted is None:
            return ()
        if slot.key is not None and _is_block(slot.value):
            start, fitted = self.text.index(":", slot.key.end_mark.index) + 1, f" {fitted}"
        may_hold_comment = isinstance(slot.value, CollectionNode) or _is_block_text(slot.value)
        if may_hold_comment and not self._is_json and _COMMENT.search(self.text, start, end):
            return ()
        return self._edit(start, end, fitted)

    def rename(self, location: Location, new: str) -> Edits:
        """``new``, as YAML, in place of the key at ``location``; nothing where that key is there already."""
        slot = self._slots.get(location)
        if slot is None or slot.key is None or slot.key.anchor is not None:
            return ()
        made = _composed(new)
        if made is None or (*location[:-1], str(made.value)) in self._slots:
            return ()
        return self.replace_key(slot.key, new, in_flow=_is_flow(slot.parent))

    def replace_key(self, key: Node, new: str, *, in_flow: bool = True) -> Edits:
        if not isinstance(key, ScalarNode) or key.anchor is not None:
            return ()
        fitted = self._fitted(new, key, in_flow=in_flow)
        return self._edit(key.start_mark.index, key.end_mark.index, fitted) if fitted is not None else ()

    def _fitted(self, new: str, old: Node, *, in_flow: bool) -> str | None:
        """``new`` with the quotes of the ``old`` node where both are text, else with those that it needs here; None
        where this file cannot hold it."""
        if self._is_json:
            return _as_json(new)
        made = _composed(new)
        if made is None or made.tag != _STRING:
            return new
        value = str(made.value)
        if isinstance(old, ScalarNode) and old.tag == _STRING and old.style in {None, "'"}:
            new = value if old.style is None else _single_quoted(value)
        elif isinstance(old, ScalarNode) and old.style == '"':
            return yaml_text.quoted(value)
        return new if new[:1] in {'"', "'"} or _reads_as_itself(new, in_flow=in_flow) else yaml_text.quoted(value)

    # -- remove --------------------------------------------------------------------------------------------------

    def remove(self, location: Location) -> Edits:
        """The entry or item at ``location`` goes, with its lines or its comma; an emptied parent goes with it."""
        slot = self._slots.get(location)
        if slot is None or slot.shared or location in self._anchored:
            return ()
        if len(slot.beside) == 1:
            return self.remove(location[:-1])
        return self._without(slot)

    def remove_repeated(self, parent: MappingNode, index: int) -> Edits:
        """The entry goes if an earlier one in the mapping says the same in the same words."""
        key, value = parent.value[index]
        first = next(one for one in parent.value if one[0].value == key.value)
        texts = [self.text[one.start_mark.index : self._end(name, one) or 0] for name, one in (first, (key, value))]
        # An anchor, or an alias, may be another thing at another place.
        if texts[0] != texts[1] or not texts[0] or re.search(r"[&*]", texts[0]):
            return ()
        return self._without(_Slot(key, value, parent, index, shared=False))

    def remove_tag(self, node: Node) -> Edits:
        start: int = node.start_mark.index
        tag = re.compile(r"!\S*[ \t]+").match(self.text, start)
        return self._edit(start, tag.end(), "") if tag is not None else ()

    def _without(self, slot: _Slot) -> Edits:
        span = self._flow_entry(slot) if _is_flow(slot.parent) else self._block_entry(slot)
        return self._edit(*span, "") if span is not None else ()

    def _flow_entry(self, slot: _Slot) -> tuple[int, int] | None:
        entries = slot.beside
        start, end = _start(slot.key, slot.value), self._end(slot.key, slot.value)
        last = slot.position == len(entries) - 1
        neighbour = self._end(*entries[slot.position - 1]) if last else _start(*entries[slot.position + 1])
        if end is None or neighbour is None:
            return None
        gap = self.text[neighbour:start] if last else self.text[end:neighbour]
        if self._is_json or not _NEWLINE.search(gap):  # JSON has one comma between two entries, and no comments
            return (neighbour, end) if last else (start, neighbour)
        lines = self._whole_lines(start, end, _REST_BEHIND_COMMA)
        if lines is not None:
            return lines
        comma = re.compile(r"[ \t]*,[ \t]*").match(self.text, end)
        return start, comma.end() if comma is not None else end

    def _block_entry(self, slot: _Slot) -> tuple[int, int] | None:
        start, end = _start(slot.key, slot.value), self._end(slot.key, slot.value)
        if end is None:
            return None
        if slot.key is None:
            return self._whole_lines(start, end, _REST_OF_LINE, before=_DASH)
        lines = self._whole_lines(start, end, _REST_OF_LINE)
        if lines is not None or slot.position > 0:
            return lines
        # The first key behind the dash of an item: the next one takes its place.
        following = _start(*slot.beside[1])
        return (start, following) if not _COMMENT.search(self.text, end, following) else None

    def _whole_lines(
        self, start: int, end: int, rest: re.Pattern[str], before: re.Pattern[str] = re.compile(r"[ \t]*")
    ) -> tuple[int, int] | None:
        """From the beginning of the first line to behind the end of the last, if nothing else stands on them."""
        first = max(self.text.rfind("\n", 0, start), self.text.rfind("\r", 0, start)) + 1
        behind = rest.match(self.text, end)
        if before.fullmatch(self.text, first, start) is None or behind is None:
            return None
        newline = _NEWLINE.match(self.text, behind.end())
        if newline is not None:
            return first, newline.end()
        # The file does not end with a newline, and still does not.
        return max(0, first - len(self._newline)), behind.end()

    # -- add -----------------------------------------------------------------------------------------------------

    def add(self, location: Location, new: str, order: Sequence[str] = ()) -> Edits:
        """A new entry at ``location`` with ``new``, one line of YAML, as its value.

        Args:
            order: keys of the mapping in the order in which they are usually written.
        """
        *above, name = location
        parent = self._slots.get(tuple(above))
        node = self._root if not above else parent.value if parent is not None else None
        if not isinstance(name, str) or (above and (parent is None or parent.shared)) or node is None:
            return ()
        is_flow = parent is not None and _is_flow(node)
        key = _json_text(name) if self._is_json else yaml_text.key(name)
        fitted = self._fitted(new, node, in_flow=is_flow)
        if fitted is None:
            return ()
        entry = f"{key}: {fitted}"
        if parent is not None and parent.key is not None and _is_nothing(node):
            colon = self.text.find(":", parent.key.end_mark.index)
            return self._edit(colon + 1, colon + 1, f" {{{entry}}}") if colon >= 0 else ()
        if not isinstance(node, MappingNode) or node.anchor is not None:
            return ()
        at = _place_among([str(key.value) for key, _ in node.value], name, order)
        return self._add_in_flow(node, entry, at) if _is_flow(node) else self._add_in_block(node, entry, at)

    def _add_in_flow(self, node: MappingNode, entry: str, at: int) -> Edits:
        if not node.value:
            start = node.start_mark.index
            return self._edit(start + 1, start + 1, entry) if self.text[start] == "{" else ()
        start = _start(*node.value[max(0, at - 1)])
        if at == 0:
            return self._edit(start, start, f"{entry},{self._gap(start, start)}")
        end = self._end(*node.value[at - 1])
        return self._edit(end, end, f",{self._gap(start, end)}{entry}") if end is not None else ()

    def _gap(self, start: int, end: int) -> str:
        """The text that separates a new entry from the one between ``start`` and ``end``: a line of its own where that
        has one."""
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
        """Behind the last character of a value; None where its marks do not say."""
        if value.anchor is not None and (key is None or value.start_mark.index < key.end_mark.index):
            return None  # an alias, or an item that may be one: the marks are those of the anchor
        if _is_nothing(value):
            colon = self.text.find(":", key.end_mark.index) if key is not None else -1
            is_next = colon >= 0 and not self.text[key.end_mark.index : colon].strip() if key is not None else False
            return colon + 1 if is_next else None
        if not _is_block(value):
            end: int = value.end_mark.index
            return len(self.text[:end].rstrip()) if _is_block_text(value) else end
        return self._end(*_children(value)[-1])

    def _edit(self, start: int, end: int, new: str) -> Edits:
        return (Edit(self.file, *self._lines.position(start), *self._lines.position(end), new),)


def _walk(node: Node, at: Location, *, shared: bool) -> Iterator[tuple[Location, _Slot]]:
    """Every entry below ``node``, not those below an anchor: what stands there is in other places too."""
    seen: set[str] = set()
    for index, (key, value) in enumerate(_children(node)):
        if key is not None and (not isinstance(key, ScalarNode) or key.value in seen or _is_merge(key)):
            continue
        seen.update([str(key.value)] if key is not None else [])
        here = (*at, index if key is None else str(key.value))
        yield here, _Slot(key, value, node, index, shared or value.anchor is not None)
        if isinstance(value, CollectionNode) and value.anchor is None:
            yield from _walk(value, here, shared=shared)


def _children(node: Node) -> list[tuple[Node | None, Node]]:
    if isinstance(node, MappingNode):
        return list(node.value)
    return [(None, one) for one in node.value] if isinstance(node, SequenceNode) else []


def _start(key: Node | None, value: Node) -> int:
    found: int = (value if key is None else key).start_mark.index
    return found


def _is_flow(node: Node) -> bool:
    return isinstance(node, CollectionNode) and bool(node.flow_style)


def _is_block(node: Node) -> bool:
    return isinstance(node, CollectionNode) and not node.flow_style


def _is_block_text(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.style in {"|", ">"}


def _is_nothing(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.start_mark.index == node.end_mark.index


def _is_merge(key: ScalarNode) -> bool:
    return key.value == "<<" and key.style is None


def _place_among(present: Sequence[str], name: str, order: Sequence[str]) -> int:
    """How many of the entries that are ``present`` stand before a new one."""
    if name not in order:
        return len(present)
    before = set(order[: order.index(name)])
    return max((index + 1 for index, one in enumerate(present) if one in before), default=0)


def _composed(text: str) -> Node | None:
    try:
        node: Node | None = YAML(typ="safe", pure=True).compose(text)
    except (YAMLError, ValueError):
        return None
    return node


def _as_json(new: str) -> str | None:
    """``new``, one line of YAML, as JSON; None for what JSON cannot hold."""
    node = _composed(new)
    try:
        return _json_of(node) if node is not None else None
    except (ValueError, RecursionError):
        return None


def _json_of(node: Any) -> str:
    if isinstance(node, MappingNode):
        return "{" + ", ".join(f"{_json_text(str(key.value))}: {_json_of(value)}" for key, value in node.value) + "}"
    if isinstance(node, SequenceNode):
        return "[" + ", ".join(_json_of(one) for one in node.value) + "]"
    text = str(node.value)
    kind = kind_of(text) if node.style is None else "str"
    if kind == "str" or _JSON_NUMBER.fullmatch(text):
        return _json_text(text) if kind == "str" else text
    if kind == "int":
        return str(int(text, 0 if text[1:2] in {"x", "o"} else 10))
    return _json_text({"null": None, "bool": text.lower() == "true"}[kind] if kind != "float" else float(text))


def _json_text(value: object) -> str:
    """``value`` in one line of JSON, whose characters stay as they are.

    Raises:
        ValueError: it is no number, or no text that can be written.
    """
    made = json.dumps(value, ensure_ascii=False, allow_nan=False)
    made.encode()
    return made


def _single_quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'" if value.isprintable() else yaml_text.quoted(value)


def _reads_as_itself(plain: str, *, in_flow: bool) -> bool:
    """Whether text without quotes is that text in a mapping of this form."""
    found = _composed(f"{{a: {plain}, b: c}}" if in_flow else f"a: {plain}\nb: c")
    if not isinstance(found, MappingNode) or [key.value for key, _ in found.value] != ["a", "b"]:
        return False
    value = found.value[0][1]
    return bool(value.tag == _STRING and value.value == plain)
