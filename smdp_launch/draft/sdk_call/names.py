"""Where the names of a file get their values, and where it changes mappings."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from smdp_launch.source.syntax.scopes import Function, dotted, tail


class Binding(NamedTuple):
    """A name gets a value.

    Args:
        value: None if the file does not have it, such as that of a loop's variable.
        after: the line and the column after which the value applies.
        last: the last line of the function whose parameter the name is.
    """

    name: str
    value: ast.expr | None
    after: tuple[int, int]
    last: int = sys.maxsize


class Change(NamedTuple):
    """A mapping gets an entry, or those of another mapping if there is no ``key``."""

    name: str
    key: ast.expr | None
    value: ast.expr


def bindings(tree: ast.Module) -> Iterator[Binding]:
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _parameters(node, [one for one in calls if tail(one.func) == node.name])
        elif isinstance(node, ast.For | ast.AsyncFor):
            names = (one.id for one in ast.walk(node.target) if isinstance(one, ast.Name))
            yield from (Binding(one, None, (node.target.lineno, node.target.col_offset)) for one in names)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield Binding(node.target.id, None, (node.lineno, sys.maxsize))
        else:
            yield from (Binding(name, value, (value.lineno, sys.maxsize)) for name, value in _assigned(node))


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))
    elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
        yield node.target.id, node.value


def _parameters(function: Function, calls: Sequence[ast.Call]) -> Iterator[Binding]:
    """The parameters, with the value from the file's only call of the function, or with their default."""
    last = function.end_lineno or sys.maxsize
    own = function.args
    positional = [*own.posonlyargs, *own.args]
    defaults = [*[None] * (len(positional) - len(own.defaults)), *own.defaults]
    first = 1 if positional and positional[0].arg in ("self", "cls") else 0
    declared: list[tuple[ast.arg, int | None, ast.expr | None]] = [
        *((one, at - first, default) for at, (one, default) in enumerate(zip(positional, defaults, strict=True))),
        *((one, None, default) for one, default in zip(own.kwonlyargs, own.kw_defaults, strict=True)),
    ]
    for one, position, default in declared:
        yield Binding(one.arg, _value(one.arg, position, default, calls), (one.lineno, one.col_offset), last)
    rest = (one for one in (own.vararg, own.kwarg) if one is not None)
    yield from (Binding(one.arg, None, (one.lineno, one.col_offset), last) for one in rest)


def _value(name: str, position: int | None, default: ast.expr | None, calls: Sequence[ast.Call]) -> ast.expr | None:
    if any(isinstance(one, ast.Starred) for call in calls for one in call.args):
        return None
    if any(one.arg is None for call in calls for one in call.keywords):
        return None
    passed = [_passed(call, name, position) for call in calls]
    if not any(passed):
        return default
    return passed[0] if len(passed) == 1 else None


def _passed(call: ast.Call, name: str, position: int | None) -> ast.expr | None:
    if position is not None and 0 <= position < len(call.args):
        return call.args[position]
    return next((one.value for one in call.keywords if one.arg == name), None)


def changes(tree: ast.Module) -> Iterator[Change]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for one in node.targets:
                if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name):
                    yield Change(one.value.id, one.slice, node.value)
        elif isinstance(node, ast.Call) and dotted(node.func).endswith(".update"):
            name = dotted(node.func).removesuffix(".update")
            yield from (Change(name, None, one) for one in node.args)
            yield from (Change(name, ast.Constant(one.arg), one.value) for one in node.keywords if one.arg)
