"""Other names of an object in a file: ``e`` for ``e = estimator``, and parameters of functions that get the object."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from smdp_launch.draft.sdk_call.blocks import FUNCTIONS, Blocks
from smdp_launch.source.syntax.scopes import Function, dotted, tail

#: The longest chain of names, such as a name for a part of another name's value.
_MOST_STEPS = 4
#: Calls whose result contains their arguments, or the object whose method they are.
_PASSING = frozenset({"dict", "enumerate", "getattr", "items", "list", "tuple", "values", "vars", "zip"})
_COLLECTIONS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp)


class Aliases:
    """The other names of the object that ``owners`` stand for."""

    def __init__(self, blocks: Blocks, owners: Collection[str]) -> None:
        self._blocks, self._owners = blocks, owners
        #: Names with the functions in which they stand for the object, and those of collections with the object.
        self._scopes: dict[str, set[ast.AST]] = {}
        self._collections: set[str] = set()
        nodes = list(ast.walk(blocks.tree))
        self._functions = dict(_functions(nodes))
        bound = [one for node in nodes for one in _bound(node)]
        calls = [one for one in nodes if isinstance(one, ast.Call) and tail(one.func) in self._functions]
        for _ in range(_MOST_STEPS):
            new = [one for one in (*self._assigned(bound), *self._passed(calls)) if not self._is_known(*one)]
            for name, scope in new:
                self._scopes.setdefault(name, set()).add(scope)
            if not new:
                break

    def has(self, node: ast.expr, at: ast.AST) -> bool:
        """Whether ``node``, in the function of ``at``, is another name of the object."""
        if isinstance(node, ast.Attribute) and f"self.{node.attr}" in self._owners:
            return True  # the attribute of a class, used outside of it
        if isinstance(node, ast.Subscript) and text_of(node.value) in self._collections:
            return self._is_named(node.value, at)
        return text_of(node) not in self._collections and self._is_named(node, at)

    def _is_named(self, node: ast.expr, at: ast.AST) -> bool:
        scopes = self._scopes.get(text_of(node))
        return scopes is not None and any(one in scopes for one in self._blocks.scopes(at))

    def _is_known(self, name: str, scope: ast.AST) -> bool:
        return name in self._owners or scope in self._scopes.get(name, ())

    def _assigned(self, bound: Iterable[tuple[ast.expr, ast.expr]]) -> Iterator[tuple[str, ast.AST]]:
        for target, value in bound:
            if self._contains(value):
                scopes = self._blocks.scopes(target)
                if isinstance(value, _COLLECTIONS):
                    self._collections.add(text_of(target))
                yield text_of(target), scopes[0 if isinstance(target, ast.Name) else -1]

    def _passed(self, calls: Iterable[ast.Call]) -> Iterator[tuple[str, ast.AST]]:
        for call in calls:
            function = self._functions[tail(call.func)]
            own = function.args
            names = [one.arg for one in (*own.posonlyargs, *own.args)]
            names = names[1:] if names[:1] in (["self"], ["cls"]) else names
            rest = [own.vararg.arg] if own.vararg is not None else []
            for at, one in enumerate(call.args):
                if self._contains(one):
                    passed = names[at:] + rest if isinstance(one, ast.Starred) else names[at : at + 1] or rest
                    yield from ((name, function) for name in passed)
            yield from ((one.arg, function) for one in call.keywords if one.arg and self._contains(one.value))

    def _contains(self, value: ast.expr) -> bool:
        """Whether the value may be the object or a part of it, or a collection with it."""
        parts: list[ast.AST] = [value]
        while parts:
            one = parts.pop()
            if isinstance(one, ast.Name | ast.Attribute | ast.Subscript):
                if text_of(one) in self._owners or self.has(one, one) or self._is_named(one, one):
                    return True
            elif isinstance(one, ast.Call):
                name = tail(one.func)
                if name not in self._functions and name not in _PASSING:
                    continue
                if isinstance(one.func, ast.Attribute):
                    parts.append(one.func.value)
                parts += [*one.args, *(each.value for each in one.keywords)]
                continue
            parts += ast.iter_child_nodes(one)
        return False


def _functions(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Function]]:
    """The functions of a file by their name, and ``__init__`` by the name of its class."""
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for one in node.body:
                if isinstance(one, FUNCTIONS) and one.name == "__init__":
                    yield node.name, one


def _bound(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What ``node`` assigns to names, with the values."""
    pairs: list[tuple[ast.expr, ast.expr | None]] = []
    if isinstance(node, ast.Assign):
        pairs = [(target, node.value) for target in node.targets]
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        pairs = [(node.target, node.iter)]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        pairs = [(node.optional_vars, node.context_expr)]
    for target, value in pairs:
        if value is not None and isinstance(target, ast.Tuple | ast.List):
            one_each = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] * len(target.elts)
            yield from zip(target.elts, one_each, strict=False)
        elif value is not None:
            yield target, value


def text_of(node: ast.expr) -> str:
    return dotted(node) or ast.unparse(node)
