"""The functions, rank guards and conditions around a position in a file."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from smdp_launch.source.syntax.scopes import is_main_guard
from smdp_launch.source.syntax.tree import Extent, Position, Syntax, end, start


class Function(NamedTuple):
    """A function. ``called_as`` is the name in calls of it; None if calls do not show it, as for ``__call__``."""

    name: str
    called_as: str | None
    extent: Extent


class Extents(NamedTuple):
    """The extents of one file, in the order of the file.

    Args:
        guards: parts that only some of the ranks run; they do not overlap.
        conditions: parts that may not run; they do not overlap.
    """

    functions: tuple[Function, ...] = ()
    guards: tuple[Extent, ...] = ()
    conditions: tuple[Extent, ...] = ()

    def is_guarded(self, at: Position) -> bool:
        return _covers(self.guards, at)

    def is_conditional(self, at: Position) -> bool:
        return _covers(self.conditions, at)

    def function(self, at: Position) -> Function | None:
        """The innermost function around ``at``."""
        around = [one for one in self.functions if one.extent[0] <= at < one.extent[1]]
        return around[-1] if around else None


def extents(syntax: Syntax, guards: Iterable[Extent]) -> Extents:
    return Extents(tuple(_functions(syntax)), tuple(_merged(guards)), tuple(_merged(_conditions(syntax))))


def _functions(syntax: Syntax) -> list[Function]:
    classes = [(start(one), end(one), one.name) for one in syntax.all(ast.ClassDef)]
    functions = []
    for one in sorted(syntax.all(ast.FunctionDef, ast.AsyncFunctionDef), key=start):
        called_as: str | None = one.name
        if one.name == "__init__":
            around = [name for first, last, name in classes if first <= start(one) < last]
            called_as = around[-1] if around else None
        elif one.name.startswith("__") and one.name.endswith("__"):
            called_as = None
        functions.append(Function(one.name, called_as, (start(one), end(one))))
    return functions


def _conditions(syntax: Syntax) -> list[Extent]:
    tests = [(start(one.body[0]), end(one)) for one in syntax.all(ast.If) if not is_main_guard(one)]
    tries = [(start(one), end(one)) for one in syntax.all(ast.Try)]
    return [*tests, *tries, *((start(one), end(one)) for one in syntax.all(ast.IfExp, ast.BoolOp))]


def _merged(parts: Iterable[Extent]) -> list[Extent]:
    merged: list[Extent] = []
    for first, last in sorted(parts):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _covers(parts: tuple[Extent, ...], at: Position) -> bool:
    index = bisect_right(parts, (at, (1 << 60, 0))) - 1
    return index >= 0 and at < parts[index][1]
