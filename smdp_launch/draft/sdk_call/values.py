"""The values of expressions in a script, without running it.

A value that is not in the file, such as that of ``sagemaker.get_execution_role()``, is ``Unknown``. Text with unknown
parts is ``Text``: its known parts are kept.
"""

from __future__ import annotations

import ast
import operator
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from smdp_launch.draft.sdk_call.blocks import Blocks
from smdp_launch.draft.sdk_call.flow import Flow
from smdp_launch.draft.sdk_call.names import Binding, Change, Event, Names, Variable
from smdp_launch.secret_forms import named_secrets, without_forms
from smdp_launch.source.syntax.scopes import dotted, is_main_guard, tail

#: An expression may use names whose values use names, and so on.
_DEEPEST = 50
#: A key that starts with this, in a mapping or in named arguments, stands for entries that are not in the file.
LOST = "**"


@dataclass(frozen=True)
class Unknown:
    """``source``: the expression, or the name, whose value is not in the file."""

    source: str


@dataclass(frozen=True)
class Text:
    """Text with unknown parts."""

    parts: tuple[str | Unknown, ...]

    @property
    def source(self) -> str:
        return "".join(one if isinstance(one, str) else f"{{{one.source}}}" for one in self.parts)


@dataclass(frozen=True)
class Made:
    """The result of a call, such as ``TrainingInput(...)``.

    Args:
        path: the called name as it is written.
        place: such as ``line 12``.
        places: of the named arguments.
        read: the names and positions of the arguments that were asked for.
    """

    path: str
    given: Sequence[Any]
    named: Mapping[str, Any] = field(default_factory=dict)
    place: str = field(default="", compare=False)
    places: Mapping[str, str] = field(default_factory=dict, compare=False)
    read: set[str | int] = field(default_factory=set, compare=False, repr=False)

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def get(self, name: str, position: int | None = None) -> Any:
        """The value of an argument, which then counts as read; None without one."""
        self.read.add(name)
        if name in self.named:
            return self.named[name]
        if position is None or position >= len(self.given):
            return None
        self.read.add(position)
        return self.given[position]

    def changed(self, name: str, value: Any, place: str) -> Made:
        """The object with another value of one argument."""
        return replace(
            self, named={**self.named, name: value}, places={**self.places, name: place}, read=set(self.read)
        )


#: Functions that make objects, and one that makes the URI of AWS's image.
_OBJECTS = ("s3_input", "file_system_input")
_IMAGE = "image_uris.retrieve"
_FILE = Unknown("__file__")
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_NUMBERS = (int, float)
#: Longer lists are not unpacked: lines that unpack a list into itself would need exponential memory.
_LONGEST = 1000
#: A name whose value needs more steps is not read: each use of a name has a step for each line that changes its value.
_MOST_STEPS = 50_000
#: Larger powers are not computed.
_LARGEST = 10**12


class Values:
    """Evaluates expressions of one file.

    Args:
        place: gives a line of ``tree`` as text.
    """

    def __init__(self, tree: ast.Module, place: Callable[[int], str]) -> None:
        self.place = place
        self.blocks = Blocks(tree)
        #: What the values leave out, because it may not run, or may run several times; with the places.
        self.lost: list[str] = []
        self._names, self._flow = Names(self.blocks), Flow(self.blocks)
        self._read: dict[ast.AST, Any] = {}
        self._steps = 0

    def variables(self, name: ast.Name) -> frozenset[Variable]:
        """The variable that ``name`` stands for, and those that may be the same mapping or list."""
        return frozenset(self._names.same(name.id, self._names.scope(name.id, name)))

    def of(self, node: ast.expr, depth: int = 0) -> Any:
        """The value of ``node``, where names have the values that they were last assigned above it."""
        if depth > _DEEPEST:
            return Unknown(_source(node))
        kind = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        return Unknown(_source(node)) if kind is None else kind(node, depth + 1)

    def _of_constant(self, node: ast.Constant, _: int) -> Any:
        return node.value if isinstance(node.value, str | int | float | bool | None) else Unknown(_source(node))

    def _of_name(self, node: ast.Name, depth: int) -> Any:
        # Once for each place: a mapping that lines change with its own entries would need exponential time.
        if node not in self._read:
            self._read[node] = Unknown(node.id)  # for a recursive call that passes the parameter on
            self._read[node] = self._latest(node, depth)
        return self._read[node]

    def _latest(self, node: ast.Name, depth: int) -> Any:
        """The value that the name was last assigned, with the changes since then."""
        result: Any = Unknown(node.id)
        events = self._names.events(node)
        self._steps += len(events)
        if self._steps > _MOST_STEPS:
            return result
        for event, is_sure in self._flow.history(events, node, lambda one: self._truth(one, depth)):
            if isinstance(event, Change):
                result = self._changed(result, event, is_sure and event.name == node.id, depth)
            elif is_sure and event.value is not None:
                result = self.of(event.value, depth)
                if isinstance(result, str) and named_secrets(result, node.id):
                    result = Unknown(node.id)
            elif not is_sure:
                result = result if isinstance(result, Unknown) else Unknown(node.id)
                self._lose(event)
        return result

    def _lose(self, event: Event) -> None:
        source = event.name if isinstance(event, Binding) else _source(event.node)
        self.lost.append(f"`{without_forms(source)}` in {self.place(event.node.lineno)}")

    def _truth(self, node: ast.AST, depth: int) -> bool | None:
        """The value of an if's or a loop's condition; None if it is not known."""
        if is_main_guard(node):
            return True
        if node not in self._read:
            self._read[node] = Unknown("")
            self._read[node] = self.of(node.test, depth)  # type: ignore[attr-defined]
        value = self._read[node]
        return bool(value) if isinstance(value, str | int | float | None) else None

    def _changed(self, value: Any, change: Change, is_sure: bool, depth: int) -> Any:
        """The mapping, the list, or the object of a call after the change."""
        is_changed = isinstance(value, Made) if change.kind == "attribute" else isinstance(value, dict | list)
        if not is_changed:
            return value
        source = _source(change.node)
        inner = Unknown(source) if change.value is None else self.of(change.value, depth)
        key = self.of(change.key, depth) if change.key is not None else None
        is_unread = isinstance(value, list) and change.kind != "append"
        if not is_sure or is_unread or (change.kind == "merge" and not isinstance(inner, dict)):
            self._lose(change)
        if not is_sure:
            entries = inner if change.kind == "merge" and isinstance(inner, dict) else None
            inner = Unknown(source) if entries is None else dict.fromkeys(entries, Unknown(source))
        if isinstance(value, Made):
            return value.changed(str(key), inner, self.place(change.node.lineno))
        if isinstance(value, list):
            return Unknown(source) if is_unread else [*value, Unknown(source)]
        result = dict(value)
        is_there = isinstance(key, str | int | float) and key in result
        if change.kind in ("merge", "append"):
            merge(result, inner, source if change.value is None else _source(change.value))
        elif change.kind == "remove" and is_sure and is_there:
            del result[key]
        elif is_there == (change.kind == "remove") or change.kind == "set":
            _set(result, key, inner, source)
        return result

    def _of_attribute(self, node: ast.Attribute, _: int) -> Any:
        return Unknown(_source(node))

    def _of_list(self, node: ast.List | ast.Tuple, depth: int) -> Any:
        result: list[Any] = []
        for one in node.elts:
            value = self.of(one.value if isinstance(one, ast.Starred) else one, depth)
            if not isinstance(one, ast.Starred):
                result.append(value)
            elif isinstance(value, list) and len(value) <= _LONGEST:
                result += value
            else:
                result.append(Unknown(_source(one)))
        return result

    _of_tuple = _of_list

    def _of_dict(self, node: ast.Dict, depth: int) -> Any:
        result: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self.of(value, depth)
            if key is None:
                merge(result, inner, _source(value))
            else:
                _set(result, self.of(key, depth), inner, _source(key))
        return result

    def _of_joinedstr(self, node: ast.JoinedStr, depth: int) -> Any:
        parts = [self.of(one.value if isinstance(one, ast.FormattedValue) else one, depth) for one in node.values]
        return joined(parts)

    def _of_unaryop(self, node: ast.UnaryOp, depth: int) -> Any:
        value = self.of(node.operand, depth)
        if isinstance(node.op, ast.USub) and isinstance(value, _NUMBERS):
            return -value
        if isinstance(node.op, ast.Not) and isinstance(value, bool):
            return not value
        return Unknown(_source(node))

    def _of_binop(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.of(node.left, depth), self.of(node.right, depth)
        result: Any = None
        if isinstance(node.op, ast.BitOr) and (isinstance(left, dict) or isinstance(right, dict)):
            result = {}
            merge(result, left, _source(node.left))
            merge(result, right, _source(node.right))
        elif isinstance(node.op, ast.Add) and (isinstance(left, str | Text) or isinstance(right, str | Text)):
            result = joined([left, right])
        elif isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            result = left + right
        elif isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS):
            result = _computed(node.op, left, right)
        return Unknown(_source(node)) if result is None else result

    def _of_ifexp(self, node: ast.IfExp, depth: int) -> Any:
        is_true = self._truth(node, depth)
        return Unknown(_source(node)) if is_true is None else self.of(node.body if is_true else node.orelse, depth)

    def _of_subscript(self, node: ast.Subscript, depth: int) -> Any:
        container, index = self.of(node.value, depth), self.of(node.slice, depth)
        try:
            return container[index]
        except (TypeError, KeyError, IndexError):
            return Unknown(_source(node))

    def arguments(self, node: ast.Call, depth: int = 0) -> Made:
        """The arguments of any call."""
        given, named, places = [], {}, {}
        for at, each in enumerate(node.args):
            if isinstance(each, ast.Starred):  # the positions of the arguments after it are not known
                named = {_source(rest): Unknown(_source(rest)) for rest in node.args[at:]}
                places = dict.fromkeys(named, self.place(each.lineno))
                break
            given.append(self.of(each, depth))
        for one in node.keywords:
            value, entries = self.of(one.value, depth), {}
            if one.arg is not None:
                entries[one.arg] = value
            else:
                merge(entries, value, _source(one.value))
            named |= {str(name): inner for name, inner in entries.items()}
            places |= {str(name): self.place(one.value.lineno) for name in entries}
        # A chain of methods begins lines above the name of the last method.
        place = self.place(node.func.end_lineno or node.lineno)
        return Made(dotted(node.func) or tail(node.func), given, named, place, places)

    def _of_call(self, node: ast.Call, depth: int) -> Any:
        made = self.arguments(node, depth)
        given, named = made.given, made.named
        name = tail(node.func)
        if isinstance(node.func, ast.Attribute) and name == "format":
            return _formatted(self.of(node.func.value, depth), given, named, node)
        if isinstance(node.func, ast.Attribute) and dotted(node.func).endswith("path.join"):
            return joined([one for each in given for one in (each, "" if str(each).endswith("/") else "/")][:-1])
        if name == "dict" and len(node.args) < 2:
            entries: dict[Any, Any] = {}
            for one in node.args:
                merge(entries, self.of(one, depth), _source(one))
            merge(entries, dict(named), name)
            return entries
        if name in ("str", "int", "float") and len(given) == 1 and isinstance(given[0], str | int | float):
            return _converted(name, given[0], node)
        if name[:1].isupper() or name in _OBJECTS or made.path.endswith(_IMAGE):
            return made
        return _folder_of_file(name, given) or Unknown(_source(node))


def _folder_of_file(name: str, given: Sequence[Any]) -> Any:
    """The folder of the file, in which its code runs, as ``.``; None for another call."""
    if name in ("getcwd", "cwd") and not given:
        return "."
    if name in ("abspath", "realpath") and len(given) == 1 and given[0] in (".", _FILE):
        return given[0]
    return "." if name == "dirname" and given == [_FILE] else None


def joined(parts: Sequence[Any]) -> Any:
    """``parts`` as one text, or as Text if some of them are unknown."""
    flat: list[str | Unknown] = []
    for one in parts:
        pieces: Sequence[Any] = one.parts if isinstance(one, Text) else [one]
        for piece in pieces:
            if isinstance(piece, Unknown):
                flat.append(piece)
            elif isinstance(piece, str | int | float):
                text = str(piece)
                if flat and isinstance(flat[-1], str):
                    flat[-1] += text
                else:
                    flat.append(text)
            else:
                flat.append(Unknown("..."))
    if all(isinstance(one, str) for one in flat):
        return "".join(str(one) for one in flat)
    return Text(tuple(flat))


def _computed(operation: ast.operator, left: float, right: float) -> float | None:
    compute = _OPERATORS.get(type(operation))
    if compute is None or max(abs(left), abs(right)) > _LARGEST or (isinstance(operation, ast.Pow) and right > 64):
        return None
    try:
        return compute(left, right)  # type: ignore[no-any-return]
    except (ArithmeticError, ValueError):
        return None


def _formatted(template: Any, given: Sequence[Any], named: Mapping[str, Any], node: ast.Call) -> Any:
    """The value of ``template.format(...)``, for fields without a format."""
    if not isinstance(template, str):
        return Unknown(_source(node))
    parts: list[Any] = []
    number = 0
    try:
        for text, name, spec, conversion in string.Formatter().parse(template):
            parts.append(text)
            if name is None:
                continue
            if spec or conversion:
                return Unknown(_source(node))
            at, number = (name, number) if name else (str(number), number + 1)
            parts.append(given[int(at)] if at.isdecimal() else named[at])
    except (ValueError, IndexError, KeyError):
        return Unknown(_source(node))
    return joined(parts)


def _converted(kind: str, value: str | float, node: ast.Call) -> Any:
    try:
        return {"str": str, "int": int, "float": float}[kind](value)
    except (ValueError, OverflowError):
        return Unknown(_source(node))


def merge(result: dict[Any, Any], more: Any, source: str) -> None:
    """Add entries to ``result``. Those that are not in the file may replace any other."""
    entries = more if isinstance(more, dict) else {f"{LOST}{source}": Unknown(source)}
    lost = [one for name, one in entries.items() if str(name).startswith(LOST)]
    result |= dict.fromkeys(result if lost else (), *lost[:1])
    result |= entries


def _set(result: dict[Any, Any], key: Any, value: Any, source: str) -> None:
    if isinstance(key, str | int | float):
        result[key] = value
    else:
        merge(result, None, source)


def _source(node: ast.AST) -> str:
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError):
        return "..."
