"""Where the names of a file get their values, and where it changes mappings, lists and objects."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from smdp_launch.draft.sdk_call.blocks import COMPREHENSIONS, FUNCTIONS, Blocks, Point, begin_of, end_of
from smdp_launch.source.syntax.scopes import Function, dotted

#: Nodes whose names are not seen outside of them.
_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef, *COMPREHENSIONS)
#: Methods that change a mapping or a list in another way than ``update``, ``pop`` and ``setdefault``.
_METHODS = ("popitem", "clear", "insert", "remove", "sort", "reverse")
#: A name and the scope that binds it; None if the file does not bind it.
Variable = tuple[str, ast.AST | None]


@dataclass(frozen=True, eq=False)
class Event:
    """A name gets a value, or the value changes.

    Args:
        node: the place in the file.
        after: the line and the column after which the event has an effect.
        value: None if the file does not have it, such as that of a loop's variable.
    """

    name: str
    node: ast.expr | ast.stmt
    after: Point
    value: ast.expr | None


@dataclass(frozen=True, eq=False)
class Binding(Event):
    """A name gets a value.

    Args:
        scope: the function or comprehension whose name it is, or the file.
    """

    scope: ast.AST


@dataclass(frozen=True, eq=False)
class Change(Event):
    """A mapping, a list or an object changes.

    Args:
        kind: an entry is set, or set if there is none, or removed; the entries of another mapping are added; a list
            gets more elements at its end; an attribute of an object is set.
        key: of the entry, or the attribute's name; None for ``merge`` and ``append``.
    """

    kind: Literal["set", "default", "remove", "merge", "append", "attribute"]
    key: ast.expr | None


class Names:
    """The events of all names of a file."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._bound: dict[Variable, list[Binding]] = {}
        self._changed: dict[str, list[Change]] = {}
        nodes = list(ast.walk(blocks.tree))
        self._global = {
            (name, blocks.scopes(one)[0]) for one in nodes if isinstance(one, ast.Global) for name in one.names
        }
        stored = {target: (value, after) for one in nodes for target, value, after in _stored(one)}
        declared = {one.target for one in nodes if isinstance(one, ast.AnnAssign) and one.value is None}
        for node in nodes:
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
                if not isinstance(node.ctx, ast.Load) and node not in declared:
                    value, after = stored.get(node, (None, end_of(node)))
                    self._add(_event(node, value, after, self._scope_of(node)))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = [(one.asname or one.name).partition(".")[0] for one in node.names]
                self._add(*(Binding(one, node, begin_of(node), None, self._scope_of(node)) for one in names))
            elif isinstance(node, ast.Call):
                self._add(*_called(node))
            elif isinstance(node, FUNCTIONS):
                calls = blocks.calls(node)
                self._add(*_parameters(node, calls, not blocks.is_passed(node)))
            elif isinstance(node, ast.Lambda):
                self._add(*(Binding(one.arg, node.body, begin_of(node), None, node) for one in node.args.args))
        for node in nodes:
            if isinstance(node, FUNCTIONS):
                self._add(*self._passed(node))
        self._same = self._aliases()

    def events(self, name: ast.Name) -> list[Event]:
        """The events of the variable that ``name`` stands for at its place."""
        scope = self.scope(name.id, name)
        if scope is None:
            return []
        bound = self._bound[name.id, scope]
        first = min(one.after for one in bound)
        # An import of all names may bind the name, too, but no name that has a value already.
        stars = [one for one in self._bound.get(("*", scope), ()) if one.after < first]
        changes = self._changes(name.id, scope)
        for other in self.same(name.id, scope):
            if other != (name.id, scope):
                more = [one for one in self._bound[other] if _is_augmented(one)]
                changes += [Change(one.name, one.node, one.after, None, "append", None) for one in more]
                changes += self._changes(*other)
        return [*stars, *bound, *changes]

    def _changes(self, name: str, scope: ast.AST | None) -> list[Change]:
        return [one for one in self._changed.get(name, ()) if self.scope(name, one.node) is scope]

    def _aliases(self) -> dict[Variable, dict[Variable, None]]:
        """The variables that may be the same mapping or list, as after ``a = b``, for each of them."""
        same: dict[Variable, dict[Variable, None]] = {}
        for at, bound in self._bound.items():
            for one in bound:
                value = one.value if isinstance(one.node, ast.Name) else None  # a parameter's changes are known
                scope = self.scope(value.id, value) if isinstance(value, ast.Name) else None
                if isinstance(value, ast.Name) and scope is not None:
                    other = (value.id, scope)
                    group = same.get(at, {at: None}) | same.get(other, {other: None})
                    same |= dict.fromkeys(group, group)
        return same

    def same(self, name: str, scope: ast.AST | None) -> Collection[Variable]:
        """The variable, and those that may be the same mapping or list."""
        return self._same.get((name, scope), [(name, scope)])

    def scope(self, name: str, node: ast.AST) -> ast.AST | None:
        """The scope that binds the name; None if the file does not bind it."""
        return next((one for one in self._blocks.scopes(node, _SCOPES) if (name, one) in self._bound), None)

    def _scope_of(self, target: ast.expr | ast.stmt) -> ast.AST:
        """The scope in which an assignment binds ``target``."""
        scope = self._blocks.scopes(target, _SCOPES)[0]
        return self._blocks.tree if (getattr(target, "id", None), scope) in self._global else scope

    def _add(self, *events: Event | None) -> None:
        for one in events:
            if isinstance(one, Binding):
                self._bound.setdefault((one.name, one.scope), []).append(one)
            elif isinstance(one, Change):
                self._changed.setdefault(one.name, []).append(one)

    def _passed(self, function: Function) -> list[Change]:
        """The changes of mappings and objects that are passed to a function which changes its parameter."""
        found = []
        for call in self._blocks.calls(function):
            for name, _, position, _ in _declared(function):
                given = _argument(call, name, position)
                for one in self._changed.get(name, ()) if isinstance(given, ast.Name) else ():
                    if self.scope(name, one.node) is function and isinstance(given, ast.Name):
                        kind = one.kind if one.kind in ("merge", "append", "attribute") else "set"
                        found.append(Change(given.id, call.func, end_of(call), None, kind, one.key))
        return found


def _stored(node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr | None, Point]]:
    """What a statement or expression assigns to: the target, the value if it is known, and the end of the value."""
    pairs: list[tuple[ast.expr, ast.expr | None]] = []
    if isinstance(node, ast.Assign):
        pairs = [(one, node.value) for one in node.targets]
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        pairs = [(node.target, node.value)]
    elif isinstance(node, ast.AugAssign):
        pairs = [(node.target, ast.copy_location(ast.BinOp(node.target, node.op, node.value), node))]
    for target, value in pairs:
        end = end_of(node.value)  # type: ignore[attr-defined]
        yield from ((one, None, end) for one in ast.walk(target))
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            if not any(isinstance(one, ast.Starred) for one in (*target.elts, *value.elts)):
                yield from ((one, each, end) for one, each in zip(target.elts, value.elts, strict=False))
        else:
            yield target, value, end


def _is_augmented(binding: Binding) -> bool:
    """Whether the binding changes a mapping or a list itself, as ``a |= b`` does."""
    return isinstance(binding.value, ast.BinOp) and binding.value.left is binding.node


def _event(
    target: ast.Name | ast.Attribute | ast.Subscript, value: ast.expr | None, after: Point, scope: ast.AST
) -> Event | None:
    """What an assignment to ``target``, or its deletion, binds or changes."""
    if isinstance(target, ast.Name):
        return Binding(target.id, target, after, value, scope)
    outer: ast.expr = target
    while isinstance(outer, ast.Attribute | ast.Subscript) and not isinstance(outer.value, ast.Name):
        outer = outer.value
    if not isinstance(outer, ast.Attribute | ast.Subscript) or not isinstance(outer.value, ast.Name):
        return None
    name, is_part = outer.value.id, outer is not target
    if isinstance(outer, ast.Subscript):
        is_removed = isinstance(target.ctx, ast.Del) and not is_part
        return Change(name, target, after, None if is_part else value, "remove" if is_removed else "set", outer.slice)
    key = ast.Constant(ast.unparse(target).removeprefix(f"{name}."))
    return Change(name, target, after, None if is_part else value, "attribute", key)


def _called(call: ast.Call) -> Iterator[Change]:
    """What the call of a method of a name changes."""
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return
    name, method, end = call.func.value.id, call.func.attr, end_of(call)
    if method == "update":
        yield from (Change(name, call.func, end, one, "merge", None) for one in call.args)
        for one in call.keywords:
            key = ast.Constant(one.arg) if one.arg else None
            yield Change(name, call.func, end, one.value, "merge" if key is None else "set", key)
    elif method in ("pop", "setdefault") and call.args:
        value = call.args[1] if len(call.args) > 1 else ast.Constant(None)
        yield Change(name, call.func, end, value, "remove" if method == "pop" else "default", call.args[0])
    elif method in (*_METHODS, "pop"):
        yield Change(name, call.func, end, None, "merge", None)
    elif method in ("append", "extend"):
        yield Change(name, call.func, end, None, "append", None)


def _declared(function: Function) -> Iterator[tuple[str, Point, int | None, ast.expr | None]]:
    """The parameters of a function: their names, places, positions in a call, and defaults."""
    own = function.args
    positional = [*own.posonlyargs, *own.args]
    defaults = [*[None] * (len(positional) - len(own.defaults)), *own.defaults]
    first = 1 if positional and positional[0].arg in ("self", "cls") else 0
    for at, (one, default) in enumerate(zip(positional, defaults, strict=True)):
        yield one.arg, (one.lineno, one.col_offset), at - first, default
    for one, default in zip(own.kwonlyargs, own.kw_defaults, strict=True):
        yield one.arg, (one.lineno, one.col_offset), None, default


def _parameters(function: Function, calls: Sequence[ast.Call], are_all: bool) -> Iterator[Binding]:
    """The parameters, with the value from the only call of the function, or with their default.

    Args:
        are_all: no other code calls the function.
    """
    inside = function.body[0]
    for name, place, position, default in _declared(function):
        value = _value(function, name, position, default, calls) if are_all else None
        yield Binding(name, inside, place, value, function)
    rest = (one for one in (function.args.vararg, function.args.kwarg) if one is not None)
    yield from (Binding(one.arg, inside, (one.lineno, one.col_offset), None, function) for one in rest)


def _value(
    function: Function, name: str, position: int | None, default: ast.expr | None, calls: Sequence[ast.Call]
) -> ast.expr | None:
    if any(isinstance(one, ast.Starred) for call in calls for one in call.args):
        return None
    if any(one.arg is None for call in calls for one in call.keywords):
        return None
    passed = [_argument(call, name, position) for call in calls]
    if not any(passed):  # a decorator may call the function with other values
        return None if function.decorator_list else default
    # The method of another object may have the same name.
    own = (function.name, f"self.{function.name}", f"cls.{function.name}")
    return passed[0] if len(passed) == 1 and (dotted(calls[0].func) in own or function.name == "__init__") else None


def _argument(call: ast.Call, name: str, position: int | None) -> ast.expr | None:
    if position is not None and 0 <= position < len(call.args):
        return call.args[position]
    return next((one.value for one in call.keywords if one.arg == name), None)
