"""What the lines between the call that makes an object of the SDK and the call that starts it change in the object."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from smdp_launch.draft.sdk_call.values import Made, Values
from smdp_launch.secret_forms import without_forms

#: The names under which version 2 of the SDK keeps the hyperparameters.
_HYPERPARAMETERS = ("_hyperparameters", "hyperparam_dict")
#: A line in one of these may not run, or may run several times.
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.For, ast.AsyncFor, ast.While)
#: How the names of methods begin that change an object, and the methods of mappings and lists that do.
_CHANGING = ("set_", "add_", "enable_", "update_")
_OF_PARTS = ("update", "setdefault", "pop", "append", "extend", "insert", "remove", "clear")

_Change = ast.Assign | ast.AugAssign | ast.Delete | ast.Call
_Step = str | ast.expr
_Point = tuple[int, int]


def changed(
    tree: ast.Module, values: Values, made: Made, call: ast.Call, others: Sequence[ast.Call], start: ast.Call | None
) -> tuple[Made, list[str]]:
    """The object ``made`` of ``call`` with its changes, and those that cannot be applied, with their places.

    Args:
        others: the calls that make other objects; one that gets the same name ends the search.
        start: the call that starts the object; None if it is not known.
    """
    owners = _owners(tree, call, start)
    first, end = _end(call), _end(start.func) if start is not None else (sys.maxsize, 0)
    if end < first:  # a function that is defined below makes it
        first = (0, 0)
    again = [_begin(one) for each in others for one in _assigned(tree, each) if owners & _targets(one)]
    end = min([end, *(one for one in again if one > first)])
    lost: list[str] = []
    for node, target, steps in _changes(tree, owners):
        if not first < _begin(node) < end:
            continue
        result = None if _is_conditional(tree, node, call, start) else _applied(values, made, node, steps)
        if result is None:
            lost.append(f"`{without_forms(ast.unparse(target))}` in {values.place(node.lineno)}")
        else:
            made = result
    return made, lost


def _begin(node: ast.expr | ast.stmt) -> _Point:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> _Point:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _assigned(tree: ast.Module, made: ast.Call) -> Iterator[ast.Assign | ast.AnnAssign]:
    """The assignments of the object of ``made``, or of one that contains it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and made in ast.walk(node.value):
            yield node


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    return {ast.unparse(one) for one in (node.targets if isinstance(node, ast.Assign) else [node.target])}


def _owners(tree: ast.Module, call: ast.Call, start: ast.Call | None) -> set[str]:
    """The expressions that stand for the object, such as ``estimator`` and ``made["first"]``."""
    owners = {one for node in _assigned(tree, call) for one in _targets(node)}
    if start is not None and isinstance(start.func, ast.Attribute):
        owners.add(ast.unparse(start.func.value))
    return owners


def _changes(tree: ast.Module, owners: set[str]) -> list[tuple[_Change, ast.expr, list[_Step]]]:
    """The changes in the order of the lines, each with what it changes and the steps from the object to it."""
    found: list[tuple[_Change, ast.expr, list[_Step]]] = []
    for node in ast.walk(tree):
        for target in _changed_by(node):
            steps = _steps(target, owners)
            if steps and isinstance(node, _Change) and (not isinstance(node, ast.Call) or _is_change(steps)):
                found.append((node, target, steps))
    return sorted(found, key=lambda one: _begin(one[0]))


def _changed_by(node: ast.AST) -> Sequence[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        return [each for one in node.targets for each in (one.elts if isinstance(one, ast.Tuple | ast.List) else [one])]
    if isinstance(node, ast.AugAssign):
        return [node.target]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args:
        return [ast.copy_location(ast.Attribute(node.args[0], "set_"), node)]
    return [node.func] if isinstance(node, ast.Call) else []


def _steps(target: ast.expr, owners: set[str]) -> list[_Step]:
    """The attributes and keys from the object to ``target``; none if it is not part of the object."""
    steps: list[_Step] = []
    while isinstance(target, ast.Attribute | ast.Subscript):
        steps.insert(0, target.attr if isinstance(target, ast.Attribute) else target.slice)
        target = target.value
        if ast.unparse(target) in owners:
            return steps
    return []


def _is_change(steps: Sequence[_Step]) -> bool:
    """Whether the method that ``steps`` end with changes the object."""
    method = steps[-1]
    return isinstance(method, str) and (method.startswith(_CHANGING) if len(steps) == 1 else method in _OF_PARTS)


def _is_conditional(tree: ast.Module, node: ast.AST, call: ast.Call, start: ast.Call | None) -> bool:
    """Whether ``node`` may not run between the two calls as often as they do."""
    return any(
        isinstance(one, _BLOCKS) and _has(one, node) and not _has(one, call) and (start is None or not _has(one, start))
        for one in ast.walk(tree)
    )


def _has(block: ast.AST, node: ast.AST) -> bool:
    line = getattr(node, "lineno", 0)
    return getattr(block, "lineno", 0) <= line <= (getattr(block, "end_lineno", None) or sys.maxsize)


def _applied(values: Values, made: Made, node: _Change, steps: Sequence[_Step]) -> Made | None:
    """The object with the change; None if it cannot be applied."""
    place = values.place(node.lineno)
    if isinstance(node, ast.Call):
        call = values.arguments(node)
        if steps == ["set_hyperparameters"]:
            return _merged(made, "hyperparameters", call.named, place)
        more = call.given[0] if len(call.given) == 1 else {}
        is_update = len(steps) == 2 and steps[1] == "update" and isinstance(more, dict) and len(call.given) < 2
        return _merged(made, _argument(steps[0]), {**more, **call.named}, place) if is_update else None
    is_one = isinstance(node, ast.Assign) and not any(isinstance(one, ast.Tuple | ast.List) for one in node.targets)
    return _assigned_to(made, steps, values, node.value, place) if isinstance(node, ast.Assign) and is_one else None


def _assigned_to(made: Made, steps: Sequence[_Step], values: Values, node: ast.expr, place: str) -> Made | None:
    name, value = _argument(steps[0]), values.of(node)
    if name is None or len(steps) > 2:
        return None
    if len(steps) == 1:
        return made.changed(name, value, place)
    step, part = steps[1], made.named.get(name)
    if isinstance(step, str):
        return made.changed(name, part.changed(step, value, place), place) if isinstance(part, Made) else None
    key = values.of(step)
    return _merged(made, name, {key: value}, place) if isinstance(key, str) else None


def _argument(step: _Step) -> str | None:
    """The argument of the call that gives the attribute ``step`` its first value."""
    if not isinstance(step, str):
        return None
    return "hyperparameters" if step in _HYPERPARAMETERS else step


def _merged(made: Made, name: str | None, more: Mapping[Any, Any], place: str) -> Made | None:
    old = made.named.get(name or "")
    if name is None or not (old is None or isinstance(old, dict)):
        return None
    return made.changed(name, {**(old or {}), **more}, place)
