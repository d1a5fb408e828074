"""The nodes of a syntax tree in the order of the file, each with the scope that it stands in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"

# Fields that hold no node which says anything here: contexts, operators, names of imports.
_EMPTY = frozenset(
    {"ctx", "op", "ops", "names", "type_comment", "type_ignores", "attr", "arg", "name", "module", "level"}
)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, getattr(ast, "TryStar", ast.Try), ast.Match)


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Where a node stands.

    Args:
        function: the innermost function around it.
        is_conditional: within that function, or the module, it may run never or several times.
        is_main: below ``if __name__ == "__main__"``, which runs only in the entry.
    """

    function: Function | None = None
    is_conditional: bool = False
    is_main: bool = False


N = TypeVar("N", bound=ast.AST)


class Nodes:
    """The nodes of a module by their kinds, those of one kind as they are written, each with its scope."""

    def __init__(self, tree: ast.Module) -> None:
        self._kinds: dict[type, tuple[list[ast.AST], list[Scope]]] = {}
        for node, scope in _ordered(tree):
            kind = node.__class__
            if kind in self._kinds:
                nodes, scopes = self._kinds[kind]
                nodes.append(node)
                scopes.append(scope)
            else:
                self._kinds[kind] = [node], [scope]

    def placed(self, kind: type[N]) -> list[tuple[N, Scope]]:
        """The nodes of this kind with their scopes."""
        nodes, scopes = self._kinds.get(kind, ((), ()))
        return list(zip(nodes, scopes, strict=True))  # type: ignore[arg-type]

    def of(self, kind: type[N]) -> list[N]:
        """The nodes of this kind; not to be changed."""
        return self._kinds[kind][0] if kind in self._kinds else []  # type: ignore[return-value]


def _ordered(tree: ast.Module) -> Iterator[tuple[ast.AST, Scope]]:
    """Every node of ``tree`` that is of use with its scope, as they are written."""
    fields: dict[type, tuple[str, ...]] = {}
    waiting: list[tuple[ast.AST, Scope]] = [(tree, Scope())]
    while waiting:
        pair = waiting.pop()
        yield pair
        node, scope = pair
        kind = node.__class__
        if kind is ast.Name or kind is ast.Constant:
            continue
        if kind not in fields:
            # Decorators stand above their function, though the tree lists them behind its body.
            named = sorted(node._fields, key=lambda one: one != "decorator_list")
            fields[kind] = tuple(one for one in named if one not in _EMPTY)[::-1]
        if kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            scope = Scope(node, False, scope.is_main)  # type: ignore[arg-type]
        elif kind in _BRANCHES:
            waiting += list(_branches(node, scope))[::-1]
            continue
        for name in fields[kind]:
            value = getattr(node, name)
            below = value[::-1] if value.__class__ is list else (value,)
            waiting += [(one, scope) for one in below if isinstance(one, ast.AST)]


def _branches(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
    """What stands below a statement that runs its parts never or several times."""
    inside = replace(scope, is_conditional=True)
    main = replace(scope, is_main=True) if is_main_guard(node) else None
    for name, value in ast.iter_fields(node):
        within = main if main is not None and name == "body" else inside
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.AST):
                yield one, within


def is_main_guard(node: ast.AST) -> bool:
    """Whether this is ``if __name__ == "__main__"``."""
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.Compare)):
        return False
    sides = [node.test.left, *node.test.comparators]
    return any(isinstance(one, ast.Name) and one.id == "__name__" for one in sides) and any(
        isinstance(one, ast.Constant) and one.value == "__main__" for one in sides
    )
