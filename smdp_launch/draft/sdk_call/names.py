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
    """A mapping gets an entry, or those of another mapping if there is no ``key``.

    Args:
        function: the innermost one with the change; None for a change outside of functions.
        is_attribute: an object gets the attribute ``key``.
    """

    name: str
    key: ast.expr | None
    value: ast.expr
    function: Function | None
    is_attribute: bool = False

    def is_seen_at(self, node: ast.AST) -> bool:
        """Whether ``node`` is in the function of the change."""
        return self.function is None or _has_line(self.function, getattr(node, "lineno", 0))


def _has_line(function: Function, line: int) -> bool:
    return function.lineno <= line <= (function.end_lineno or sys.maxsize)


def bindings(tree: ast.Module) -> Iterator[Binding]:
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _parameters(node, [one for one in calls if _is_call_of(one, node.name)])
        elif isinstance(node, ast.For | ast.AsyncFor):
            names = (one.id for one in ast.walk(node.target) if isinstance(one, ast.Name))
            yield from (Binding(one, None, (node.target.lineno, node.target.col_offset)) for one in names)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield Binding(node.target.id, None, (node.lineno, sys.maxsize))
        else:
            yield from (Binding(name, value, (value.lineno, sys.maxsize)) for name, value in _assigned(node))


def _is_call_of(call: ast.Call, name: str) -> bool:
    """Whether it is a call of a function or method of this file: ``run(...)`` is, ``subprocess.run(...)`` is not."""
    return dotted(call.func) in (name, f"self.{name}", f"cls.{name}")


def called_names(tree: ast.Module) -> frozenset[str]:
    return frozenset(tail(one.func) for one in ast.walk(tree) if isinstance(one, ast.Call))


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


def changes(tree: ast.Module) -> list[Change]:
    """In the order of the lines."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]

    def function_of(value: ast.expr) -> Function | None:
        around = (one for one in functions if _has_line(one, value.lineno))
        return max(around, key=lambda one: one.lineno, default=None)

    found = [Change(name, key, value, function_of(value)) for name, key, value in _changed(tree)]
    found += [Change(name, key, value, function_of(value), True) for name, key, value in _attributes(tree)]
    return sorted(found, key=lambda one: (one.value.lineno, one.value.col_offset))


def _changed(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for one in node.targets:
                if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name):
                    yield one.value.id, one.slice, node.value
        elif isinstance(node, ast.Call) and dotted(node.func).endswith(".update"):
            name = dotted(node.func).removesuffix(".update")
            yield from ((name, None, one) for one in node.args)
            yield from ((name, ast.Constant(one.arg), one.value) for one in node.keywords if one.arg)


def _attributes(tree: ast.Module) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Assignments to ``name.attribute``, and to a part of it, such as ``name.attribute["key"]``.

    The value of a part is not known: it is the part itself.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AugAssign):
            targets, value = [node.target], node.target
        else:
            continue
        for one in targets:
            inner = one
            while isinstance(inner, ast.Attribute | ast.Subscript) and not isinstance(inner.value, ast.Name):
                inner = inner.value
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                key = ast.unparse(one).removeprefix(f"{inner.value.id}.")
                yield inner.value.id, ast.Constant(key), value if inner is one else one
