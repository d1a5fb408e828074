"""The nodes of a syntax tree in the order of the file, each with its scope."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias, TypeVar

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"

# Fields without nodes of interest: contexts, operators, names of imports, and values that are not nodes.
_EMPTY = frozenset(
    {
        *("ctx", "op", "ops", "names", "type_comment", "type_ignores", "attr", "arg", "name", "module", "level"),
        *("id", "is_async", "simple", "conversion", "rest", "kwd_attrs", "kind", "str"),
    }
)
_MOST_PARTS = 100  # of a dotted name
_LEAVES = (ast.Name, ast.Constant, ast.MatchSingleton)
_FUNCTIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef})
_BRANCHES = frozenset({ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, getattr(ast, "TryStar", ast.Try), ast.Match})
_SCOPED = _FUNCTIONS | _BRANCHES


class Scope:
    """The scope of a node.

    Args:
        function: the innermost function around it.
        is_conditional: within that function, or the module, it may not run, or may run several times.
        is_main: it is below ``if __name__ == "__main__"``, which runs only in the entry point.
    """

    __slots__ = ("function", "is_conditional", "is_main")

    def __init__(self, function: Function | None = None, is_conditional: bool = False, is_main: bool = False) -> None:
        self.function = function
        self.is_conditional = is_conditional
        self.is_main = is_main


class Call(NamedTuple):
    """A call. ``path`` is the called name, from ``dotted``; ``name`` is its last part, from ``tail``."""

    node: ast.Call
    scope: Scope
    name: str
    path: str


N = TypeVar("N", bound=ast.AST)


class Nodes:
    """The nodes of a module by kind. Nodes of one kind are in the order of the file, each with its scope."""

    def __init__(self, tree: ast.Module) -> None:
        self._kinds = _by_kind(tree)
        self.calls = [Call(one, scope, tail(one.func), dotted(one.func)) for one, scope in self.placed(ast.Call)]
        self._called: dict[str, list[Call]] = {}
        for call in self.calls:
            self._called.setdefault(call.name, []).append(call)

    def placed(self, kind: type[N]) -> list[tuple[N, Scope]]:
        """The nodes of this kind with their scopes."""
        nodes, scopes = self._kinds.get(kind, ((), ()))
        return list(zip(nodes, scopes, strict=True))  # type: ignore[arg-type]

    def of(self, kind: type[N]) -> list[N]:
        """The nodes of this kind. The caller must not change the list."""
        return self._kinds[kind][0] if kind in self._kinds else []  # type: ignore[return-value]

    def called(self, *names: str) -> list[Call]:
        """The calls of functions with one of these ``names``, in the order of the file."""
        lists = [self._called[one] for one in names if one in self._called]
        if len(lists) < 2:
            return lists[0] if lists else []
        wanted = set(names)
        return [one for one in self.calls if one.name in wanted]


def _by_kind(tree: ast.Module) -> dict[type, tuple[list[ast.AST], list[Scope]]]:
    """The nodes of ``tree`` by kind, with their scopes."""
    kinds: dict[type, tuple[list[ast.AST], list[Scope]]] = {}
    fields: dict[type, tuple[str, ...]] = dict.fromkeys(_LEAVES, ())
    scope = Scope()
    # A stack. A scope in it applies to the nodes that are popped after it.
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        kind = node.__class__
        if kind is Scope:
            scope = node
            continue
        if kind in kinds:
            nodes, scopes = kinds[kind]
            nodes.append(node)
            scopes.append(scope)
        else:
            kinds[kind] = [node], [scope]
            fields.setdefault(kind, _fields(kind))
        if kind in _SCOPED:
            waiting += _scoped(node, scope, fields[kind])
            continue
        for name in fields[kind]:
            value = getattr(node, name)
            if value.__class__ is list:
                waiting += value[::-1]
            else:
                waiting.append(value)
    return kinds


def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of such nodes that contain nodes, in the reverse order of the file."""
    # Decorators are above their function, but the tree lists them after its body.
    # A newer Python may add fields with numbers or texts, which have no fields.
    named = sorted(getattr(kind, "_fields", ()), key=lambda one: one != "decorator_list")
    return tuple(one for one in named if one not in _EMPTY)[::-1]


def _scoped(node: Any, scope: Scope, fields: Iterable[str]) -> list[Any]:
    """The nodes within ``node`` for the stack: the scope after it, its nodes in reverse order, and its own scope."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        inside = Scope(node, False, scope.is_main)
    else:
        inside = scope if scope.is_conditional else Scope(scope.function, True, scope.is_main)
    if is_main_guard(node):
        main = Scope(scope.function, scope.is_conditional, is_main=True)
        return [scope, *node.orelse[::-1], inside, *node.body[::-1], main, node.test, inside]
    below = [scope]
    for name in fields:
        value = getattr(node, name)
        below += value[::-1] if isinstance(value, list) else [value]
    return [*below, inside]


def is_main_guard(node: ast.AST) -> bool:
    """Whether this is ``if __name__ == "__main__"``."""
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Eq)):
        return False
    sides = [node.test.left, *node.test.comparators]
    return any(isinstance(one, ast.Name) and one.id == "__name__" for one in sides) and any(
        isinstance(one, ast.Constant) and one.value == "__main__" for one in sides
    )


def tail(node: ast.AST) -> str:
    """The last part of a called name: ``backward`` for ``loss(x).backward``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dotted(node: ast.AST) -> str:
    """``a.b.c`` for such an expression, empty for any other, also for one of a hundred parts: it is no name, and the
    time for all parts of longer ones would be the square of their length."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < _MOST_PARTS:
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""
