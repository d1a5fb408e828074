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
#: A part of one of these may not run, or may run several times. A ``with`` may hide an exception of its body, and a
#: ``return`` stands for the lines of its function that follow it.
_CONDITIONAL = (
    *(*LOOPS, *COMPREHENSIONS),
    *(ast.If, ast.IfExp, ast.BoolOp, ast.Lambda, ast.ExceptHandler, ast.match_case),
    *(ast.With, ast.AsyncWith, ast.Return),
)
#: The parts of a conditional block that run once.
_ALWAYS = ("test", "iter", "items")
_SCOPES = (*FUNCTIONS, ast.Lambda)


class Blocks:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self._parents = _parents(tree)
        self._known: dict[ast.AST, list[Block]] = {}
        self._scopes: dict[tuple[ast.AST, tuple[type[ast.AST], ...]], list[ast.AST]] = {}
        self._calls: dict[str, list[ast.Call]] = {}
        self._values: dict[str, list[ast.expr]] = {}
        self._returns: dict[ast.AST, list[ast.Return]] = {}
        for one in ast.walk(tree):
            if isinstance(one, ast.Call) and isinstance(one.func, ast.Name | ast.Attribute):
                self._calls.setdefault(tail(one.func), []).append(one)
            elif isinstance(one, ast.Return):
                self._returns.setdefault(self._function_of(one), []).append(one)
            elif isinstance(one, ast.Name | ast.Attribute) and self._is_value(one):
                self._values.setdefault(tail(one), []).append(one)

    def around(self, node: ast.AST) -> list[Block]:
        """All nodes around ``node``, the innermost first, with the returns above it in a function."""
        around = self._known.get(node)
        if around is None:
            around = self._known[node] = []
            at = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
            while node in self._parents:
                outer = self._parents[node]
                around += [(one, "after") for one in self._returns.get(outer[0], ()) if end_of(one) < at]
                around.append(outer)
                node = outer[0]
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
        name, forms = self._called_as(function)
        return [one for one in self._calls.get(name, ()) if isinstance(one.func, forms)]

    def is_passed(self, function: ast.AST) -> bool:
        """Whether the file uses the function in another way than to call it: other code may then call it."""
        name, forms = self._called_as(function)
        return any(isinstance(one, forms) for one in self._values.get(name, ()))

    def _called_as(self, function: ast.AST) -> tuple[str, tuple[type[ast.expr], ...]]:
        """The name in calls of the function, and the nodes that have it."""
        name, kind = getattr(function, "name", ""), self.class_of(function)
        if name == "__init__" and kind is not None:
            name = kind.name
        return name, (ast.Name,) if kind is None else (ast.Name, ast.Attribute)

    def _function_of(self, node: ast.AST) -> ast.AST:
        """The function around a return; the file if there is none, which is an error."""
        while node in self._parents and not isinstance(node, FUNCTIONS):
            node = self._parents[node][0]
        return node

    def _is_value(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether ``node`` is neither called, nor a type, nor the object of an attribute."""
        parent, field = self._parents[node]
        is_other = field in ("func", "annotation", "returns", "bases") or isinstance(parent, ast.Attribute)
        return isinstance(node.ctx, ast.Load) and not is_other


def is_conditional(block: Block) -> bool:
    """Whether what is in the block may not run, or may run several times."""
    node, field = block
    if isinstance(node, ast.Try):
        return bool(node.handlers) and field == "body"
    return isinstance(node, _CONDITIONAL) and field not in _ALWAYS


def _is_inside(scope: ast.AST, field: str) -> bool:
    """Whether the field of a function runs when the function is called: defaults run where it is defined."""
    return field == "body" or not isinstance(scope, _SCOPES)


def begin_of(node: ast.expr | ast.stmt) -> Point:
    return node.lineno, node.col_offset


def end_of(node: ast.expr | ast.stmt) -> Point:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _parents(tree: ast.Module) -> dict[ast.AST, Block]:
    parents: dict[ast.AST, Block] = {}
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            # The else of a try follows its body, and runs if that did.
            where = "body" if isinstance(node, ast.Try) and field == "orelse" else field
            parts: Sequence[object] = value if isinstance(value, list) else [value]
            parents |= {one: (node, where) for one in parts if isinstance(one, ast.AST)}
    return parents
