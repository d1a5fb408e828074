"""The functions and conditional blocks around the nodes of a syntax tree, and the calls of the functions."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from smdp_launch.source.syntax.scopes import tail

#: A line and a column.
Point = tuple[int, int]
#: A node with the name of the field that contains the inner node.
Block = tuple[ast.AST, str]

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: A part of one of these may not run, or may run several times.
CONDITIONAL = (
    *(*LOOPS, *COMPREHENSIONS),
    *(ast.If, ast.IfExp, ast.BoolOp, ast.Lambda, ast.ExceptHandler, ast.match_case),
)
_SCOPES = (*FUNCTIONS, ast.Lambda)


class Blocks:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._parents = _parents(tree)
        self._known: dict[ast.AST, list[Block]] = {}
        self._scopes: dict[tuple[ast.AST, tuple[type[ast.AST], ...]], list[ast.AST]] = {}
        self._calls: dict[str, list[ast.Call]] = {}
        for one in ast.walk(tree):
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name | ast.Attribute):
                self._calls.setdefault(tail(one.func), []).append(one)

    def around(self, node: ast.AST) -> list[Block]:
        """All nodes around ``node``, the innermost first."""
        around = self._known.get(node)
        if around is None:
            around = self._known[node] = []
            while node in self._parents:
                around.append(self._parents[node])
                node = around[-1][0]
        return around

    def scopes(self, node: ast.AST, kinds: tuple[type[ast.AST], ...] = _SCOPES) -> list[ast.AST]:
        """The functions in whose body ``node`` is, the innermost first, and the file."""
        scopes = self._scopes.get((node, kinds))
        if scopes is None:
            inside = (one for one, field in self.around(node) if isinstance(one, kinds) and _is_inside(one, field))
            scopes = self._scopes[node, kinds] = [*inside, self.tree]
        return scopes

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        return next((one for one, _ in self.around(node) if isinstance(one, ast.ClassDef)), None)

    def calls(self, function: ast.AST) -> list[ast.Call]:
        """The calls of a function or method of the file: of ``__init__``, those of its class."""
        name, kind = getattr(function, "name", ""), self.class_of(function)
        if name == "__init__" and kind is not None:
            name = kind.name
        forms = (ast.Name,) if kind is None else (ast.Name, ast.Attribute)
        return [one for one in self._calls.get(name, ()) if isinstance(one.func, forms)]


def _is_inside(scope: ast.AST, field: str) -> bool:
    """Whether the field of a function runs when the function is called: defaults run where it is defined."""
    return field == "body" or not isinstance(scope, _SCOPES)


def begin_of(node: ast.expr | ast.stmt) -> Point:
    return node.lineno, node.col_offset


def end_of(node: ast.expr) -> Point:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _parents(tree: ast.Module) -> dict[ast.AST, Block]:
    parents: dict[ast.AST, Block] = {}
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            parts: Sequence[object] = value if isinstance(value, list) else [value]
            parents |= {one: (node, field) for one in parts if isinstance(one, ast.AST)}
    return parents
