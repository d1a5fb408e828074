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

from smdp_launch.draft.sdk_call.names import Binding, Change, bindings, called_names, changes
from smdp_launch.secret_forms import named_secrets
from smdp_launch.source.syntax.scopes import dotted, tail

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


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
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
#: Larger powers are not computed.
_LARGEST = 10**12


class Values:
    """Evaluates expressions of one file.

    Args:
        place: gives a line of ``tree`` as text.
    """

    def __init__(self, tree: ast.Module, place: Callable[[int], str]) -> None:
        self.place = place
        self._bound: dict[str, list[Binding]] = {}
        self._changes: dict[str, list[Change]] = {}
        self._read: dict[ast.Name, Any] = {}
        for binding in bindings(tree):
            self._bound.setdefault(binding.name, []).append(binding)
        for change in changes(tree):
            self._changes.setdefault(change.name, []).append(change)
        self._called = called_names(tree)

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
        here = (node.lineno, node.col_offset)
        above = (one for one in self._bound.get(node.id, ()) if one.after < here and node.lineno <= one.last)
        latest = max(above, key=lambda one: one.after, default=None)
        if latest is None or latest.value is None:
            return Unknown(node.id)
        value = self.of(latest.value, depth)
        if isinstance(value, str) and named_secrets(value, node.id):
            return Unknown(node.id)
        return self._changed(node, value, latest.after[0], depth) if isinstance(value, dict | Made) else value

    def _changed(self, node: ast.Name, value: Any, since: int, depth: int) -> Any:
        """The mapping, or the object of a call, with what the lines between its assignment and ``node`` set in it."""
        result = dict(value) if isinstance(value, dict) else value
        for one in self._changes.get(node.id, ()):
            if one.is_attribute != isinstance(value, Made) or not since < one.value.lineno < node.lineno:
                continue
            inner = self.of(one.value, depth)
            if not one.is_seen_at(node):  # of another function, which may be called before or after
                if one.function is None or one.function.name not in self._called:
                    continue
                inner = Unknown(_source(one.value))
            if isinstance(result, Made):
                result = result.changed(self.of(one.key), inner, self.place(one.value.lineno)) if one.key else result
            elif one.key is None:
                _merge(result, inner, one.value)
            else:
                _set(result, self.of(one.key, depth), inner, f"{node.id}[{_source(one.key)}]")
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
                _merge(result, inner, value)
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
        if isinstance(node.op, ast.Add):
            if isinstance(left, str | Text) or isinstance(right, str | Text):
                return joined([left, right])
            if isinstance(left, list) and isinstance(right, list):
                return left + right
        if not (isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS)):
            return Unknown(_source(node))
        compute = operator.add if isinstance(node.op, ast.Add) else _OPERATORS.get(type(node.op))
        if compute is None or max(abs(left), abs(right)) > _LARGEST or (isinstance(node.op, ast.Pow) and right > 64):
            return Unknown(_source(node))
        try:
            return compute(left, right)
        except (ArithmeticError, ValueError):
            return Unknown(_source(node))

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
                _merge(entries, value, one.value)
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
            return joined([one for each in given for one in (each, "/")][:-1])
        if name == "dict" and not given:
            return dict(named)
        if name in ("str", "int", "float") and len(given) == 1 and isinstance(given[0], str | int | float):
            return _converted(name, given[0], node)
        if name[:1].isupper() or name in ("s3_input", "file_system_input"):
            return made
        return Unknown(_source(node))


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


def _merge(result: dict[Any, Any], more: Any, node: ast.expr) -> None:
    if isinstance(more, dict):
        result |= more
    else:
        result[f"{LOST}{_source(node)}"] = Unknown(_source(node))


def _set(result: dict[Any, Any], key: Any, value: Any, source: str) -> None:
    if isinstance(key, str | int | float):
        result[key] = value
    else:
        result[f"{LOST}{source}"] = Unknown(source)


def _source(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError):
        return "..."
