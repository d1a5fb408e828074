"""What the lines between the call that makes an object of the SDK and the call that starts it change in the object."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from smdp_launch.draft.sdk_call.aliases import Aliases, text_of
from smdp_launch.draft.sdk_call.blocks import begin_of
from smdp_launch.draft.sdk_call.names import Variable
from smdp_launch.draft.sdk_call.order import Assigned, Order
from smdp_launch.draft.sdk_call.values import Made, Values, merge
from smdp_launch.secret_forms import without_forms
from smdp_launch.source.syntax.scopes import tail

#: The names under which version 2 of the SDK keeps the hyperparameters.
_HYPERPARAMETERS = ("_hyperparameters", "hyperparam_dict")
#: Arguments with mappings that the object keeps, so that it sees their later changes (sagemaker 2.257.7). Estimator
#: copies its hyperparameters, and the trainer of version 3 copies all mappings.
_SHARED = {
    **dict.fromkeys(("PyTorch", "TensorFlow", "HuggingFace"), ("hyperparameters", "environment")),
    "Estimator": ("environment",),
}
#: How the names of methods begin that change an object, and the methods of mappings and lists that do.
_CHANGING = ("set_", "add_", "enable_", "update_")
_OF_PARTS = ("update", "setdefault", "pop", "append", "extend", "insert", "remove", "clear")

_Change = ast.Assign | ast.AugAssign | ast.Delete | ast.Call
_Step = str | ast.expr
#: A change, what it changes, the object that this is a part of, and the steps from the object to it.
_Found = tuple[_Change, ast.expr, ast.expr, list[_Step]]
_StepsTo = Callable[[ast.expr, _Change], list[_Step] | None]


class _Part(NamedTuple):
    """An argument that gives a mapping to the object, and the variables that may have this mapping."""

    argument: str
    variables: frozenset[Variable]


def changed(
    tree: ast.Module, values: Values, made: Made, call: ast.Call, others: Sequence[ast.Call], start: ast.Call | None
) -> tuple[Made, list[str]]:
    """The object ``made`` of ``call`` with its changes, and those that cannot be applied, with their places.

    Args:
        others: the calls that make other objects; one that gets the same name ends the search.
        start: the call that starts the object; None if it is not known.
    """
    owners = _owners(tree, call, start)
    again = [one for each in others for one in _assigned(tree, each) if owners & _targets(one)]
    order = Order(values.blocks, call, start, again)
    parts = _parts(call, values)
    other = [
        (_targets(one), one)
        for one in ast.walk(tree)
        if _makes_another(one, call) or (isinstance(one, Assigned) and _targets(one) & parts.keys())
    ]
    lost: list[str] = []
    aliases = Aliases(values.blocks, owners)

    def steps_to(one: ast.expr, at: _Change) -> list[_Step] | None:
        """The steps from the object to ``one``: none for the object itself; None if it is no part of the object."""
        variables = values.variables(one) if isinstance(one, ast.Name) else frozenset()
        for part in parts.values():
            if variables & part.variables:
                return [part.argument]
        return [] if text_of(one) in owners or aliases.has(one, at) else None

    for node, target, owner, steps in _changes(tree, owners, steps_to):
        name = text_of(owner)
        if order.is_outside(node) or any(name in names and order.follows(node, one) for names, one in other):
            continue
        is_applied = (name in owners or name in parts) and order.is_between(node)
        result = _applied(values, made, node, steps) if is_applied else None
        if result is None:
            lost.append(f"`{without_forms(ast.unparse(target))}` in {values.place(node.lineno)}")
        else:
            made = result
    return made, lost


def _assigned(tree: ast.Module, made: ast.Call) -> Iterator[Assigned]:
    """The assignments of the object of ``made``, or of one that contains it."""
    for node in ast.walk(tree):
        if isinstance(node, Assigned) and node.value is not None and made in ast.walk(node.value):
            yield node


def _makes_another(node: ast.AST, call: ast.Call) -> TypeGuard[Assigned]:
    """Whether ``node`` assigns a new object that is not that of ``call``."""
    value = node.value if isinstance(node, Assigned) else None
    return isinstance(value, ast.Call) and tail(value.func)[:1].isupper() and call not in ast.walk(value)


def _targets(node: Assigned) -> set[str]:
    return {ast.unparse(one) for one in (node.targets if isinstance(node, ast.Assign) else [node.target])}


def _owners(tree: ast.Module, call: ast.Call, start: ast.Call | None) -> set[str]:
    """The expressions that stand for the object, such as ``estimator`` and ``made["first"]``."""
    owners = {one for node in _assigned(tree, call) for one in _targets(node)}
    if start is not None and isinstance(start.func, ast.Attribute):
        owners.add(ast.unparse(start.func.value))
    return owners


def _parts(call: ast.Call, values: Values) -> dict[str, _Part]:
    """The names of mappings that the object takes over without a copy."""
    shared = _SHARED.get(tail(call.func), ())
    given = [(one.arg, one.value) for one in call.keywords if one.arg in shared and isinstance(one.value, ast.Name)]
    return {one.id: _Part(argument, values.variables(one)) for argument, one in given}


def _changes(tree: ast.Module, owners: set[str], steps_to: _StepsTo) -> list[_Found]:
    """The changes in the order of the lines."""
    found: list[_Found] = []
    for node in ast.walk(tree):
        if not isinstance(node, _Change):
            continue
        for target in _changed_by(node):
            owner, steps = _steps(target, node, steps_to)
            if steps and (not isinstance(node, ast.Call) or _is_change(steps, text_of(owner) in owners)):
                found.append((node, target, owner, steps))
    return sorted(found, key=lambda one: begin_of(one[0]))


def _changed_by(node: _Change) -> Sequence[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        return [each for one in node.targets for each in (one.elts if isinstance(one, ast.Tuple | ast.List) else [one])]
    if isinstance(node, ast.AugAssign):
        return [node.target]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args:
        return [ast.copy_location(ast.Attribute(node.args[0], "set_"), node)]
    return [node.func]


def _steps(target: ast.expr, at: _Change, steps_to: _StepsTo) -> tuple[ast.expr, list[_Step]]:
    """The object that ``target`` is a part of, and the attributes and keys from there to it; none without one."""
    steps: list[_Step] = []
    while isinstance(target, ast.Attribute | ast.Subscript):
        steps.insert(0, target.attr if isinstance(target, ast.Attribute) else target.slice)
        target = target.value
        before = steps_to(target, at)
        if before is not None:
            return target, [*before, *steps]
    return target, []


def _is_change(steps: Sequence[_Step], of_object: bool) -> bool:
    """Whether the method that ``steps`` end with changes the object, or the part of it that has another name."""
    method = steps[-1]
    is_own = isinstance(method, str) and len(steps) == 1 and method.startswith(_CHANGING)
    return is_own or (method in _OF_PARTS and (len(steps) > 1 or not of_object))


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
    entries = dict(old or {})
    merge(entries, more, name)
    return made.changed(name, entries, place)
