"""The values of expressions in a script, without running it.

A value that is not in the file, such as that of ``sagemaker.get_execution_role()``, is ``Unknown``. Text with unknown
parts is ``Text``: its known parts are kept.
"""

from __future__ import annotations

import ast
import operator
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from smdp_launch.source.syntax.scopes import dotted, tail

#: An expression may use names whose values use names, and so on.
_DEEPEST = 50


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
    """The result of a call, such as ``TrainingInput(...)``. ``path`` is the called name as it is written."""

    path: str
    given: Sequence[Any]
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def get(self, name: str, position: int | None = None) -> Any:
        """The value of an argument; None without one."""
        if name in self.named:
            return self.named[name]
        return self.given[position] if position is not None and position < len(self.given) else None


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_NUMBERS = (int, float)
#: Larger powers are not computed.
_LARGEST = 10**12


class Values:
    """Evaluates expressions of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self._assigned: dict[str, list[tuple[int, ast.expr]]] = {}
        for node in ast.walk(tree):
            for name, value in _assignments(node):
                self._assigned.setdefault(name, []).append((value.lineno, value))

    def of(self, node: ast.expr, depth: int = 0) -> Any:
        """The value of ``node``, where names have the values that they were last assigned above it."""
        if depth > _DEEPEST:
            return Unknown(_source(node))
        kind = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        return Unknown(_source(node)) if kind is None else kind(node, depth + 1)

    def _of_constant(self, node: ast.Constant, _: int) -> Any:
        return node.value if isinstance(node.value, str | int | float | bool | None) else Unknown(_source(node))

    def _of_name(self, node: ast.Name, depth: int) -> Any:
        above = [value for line, value in self._assigned.get(node.id, ()) if line < node.lineno]
        return self.of(above[-1], depth) if above else Unknown(node.id)

    def _of_attribute(self, node: ast.Attribute, _: int) -> Any:
        return Unknown(_source(node))

    def _of_list(self, node: ast.List | ast.Tuple, depth: int) -> Any:
        return [self.of(one, depth) for one in node.elts if not isinstance(one, ast.Starred)]

    _of_tuple = _of_list

    def _of_dict(self, node: ast.Dict, depth: int) -> Any:
        result: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            inner = self.of(value, depth)
            if key is None:
                result |= inner if isinstance(inner, dict) else {}
                continue
            name = self.of(key, depth)
            if isinstance(name, str | int | float):
                result[name] = inner
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

    def _of_call(self, node: ast.Call, depth: int) -> Any:
        given = [self.of(one, depth) for one in node.args if not isinstance(one, ast.Starred)]
        named: dict[str, Any] = {}
        for one in node.keywords:
            value = self.of(one.value, depth)
            if one.arg is not None:
                named[one.arg] = value
            elif isinstance(value, dict):
                named |= {str(name): inner for name, inner in value.items()}
        name = tail(node.func)
        if isinstance(node.func, ast.Attribute) and name == "format":
            return _formatted(self.of(node.func.value, depth), given, named, node)
        if isinstance(node.func, ast.Attribute) and dotted(node.func).endswith("path.join"):
            return joined([one for each in given for one in (each, "/")][:-1])
        if name == "dict" and not given:
            return named
        if name in ("str", "int", "float") and len(given) == 1 and isinstance(given[0], str | int | float):
            return _converted(name, given[0], node)
        if name[:1].isupper() or name in ("s3_input", "file_system_input"):
            return Made(dotted(node.func) or name, given, named)
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


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))
    elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
        yield node.target.id, node.value


def _source(node: ast.expr) -> str:
    try:
        return ast.unparse(node)
    except (ValueError, RecursionError):
        return "..."
