"""Calls that save a model, and whether SageMaker surely does not upload what they save."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from smdp_launch.source.script.packages import PLAIN
from smdp_launch.source.script.values import Values
from smdp_launch.source.syntax.scopes import Function
from smdp_launch.source.syntax.tree import Mark, Syntax, keywords, words

_FUNCTIONS = {"torch.save", "torch.jit.save"}
#: Methods of trainers and models.
_METHODS = {"save_model", "save_pretrained", "save_checkpoint"}
_PATHS = ("f", "save_directory", "output_dir", "filepath", "save_dir")
#: Words of models, as parts of names and texts.
_MODEL = re.compile(r"(^|[^a-z])(model|net|network|state|checkpoint|ckpt|weights?)([^a-z]|$)", re.IGNORECASE)
#: Functions whose paths begin as their first argument does.
_OF_PATHS = {"os.path.join", "os.path.normpath", "pathlib.Path", "pathlib.PurePath", "str", "open"}
_METHODS_OF_PATHS = {"format", "joinpath", "with_suffix"}
#: Limits for hostile scripts.
_MOST_SAVES = 50
_MOST_STEPS = 20
#: With ``%`` and ``{`` a text begins with a value.
_UNKNOWN_BEGINS = ("/opt", "..", "./..", "~", "$", "%", "{")
_UNKNOWN = ast.Constant(None)


class ModelSave(NamedTuple):
    """A call that saves something.

    Args:
        is_model: this is probably a model.
        is_lost: its path is a text in the file or the default of an option, and SageMaker does not upload it.
    """

    mark: Mark
    is_model: bool
    is_lost: bool


def model_saves(syntax: Syntax, values: Values) -> Iterator[ModelSave]:
    if syntax.uses.keys().isdisjoint({"save", *_METHODS}):
        return
    paths = _Paths(syntax, values)
    for call, path in islice(_saves(syntax), _MOST_SAVES):
        begins = paths.begins(path) if path is not None else frozenset()
        is_model = syntax.full_name(call.func) not in _FUNCTIONS or any(map(_MODEL.search, _names(call)))
        yield ModelSave(syntax.mark(call), is_model, bool(begins) and all(map(_is_lost, begins)))


def _saves(syntax: Syntax) -> Iterator[tuple[ast.Call, ast.expr | None]]:
    """The calls with their paths; None for a path that the call does not name."""
    own = {one.name for one in syntax.all(ast.FunctionDef, ast.AsyncFunctionDef)}
    named = [keywords(one.node) for one in syntax.calls]
    # A trainer saves to the folder of its arguments, such as TrainingArguments(output_dir="out").
    folders = [each["output_dir"] for each in named if "output_dir" in each]
    for (call, name, full_name), each in zip(syntax.calls, named, strict=True):
        by_name = next((each[one] for one in _PATHS if one in each), None)
        is_method = isinstance(call.func, ast.Attribute) and full_name.partition(".")[0] not in PLAIN
        if full_name in _FUNCTIONS:
            yield call, next(iter(call.args[1:2]), by_name)
        elif name in _METHODS - own and is_method:
            of_trainer = folders[0] if name == "save_model" and len(folders) == 1 else None
            yield call, next(iter(call.args[:1]), by_name or of_trainer)


def _names(call: ast.Call) -> Iterator[str]:
    """The identifiers and texts of the arguments."""
    arguments = [*call.args, *keywords(call).values()]
    yield from words(*arguments)
    parts = (one for each in arguments for one in ast.walk(each) if isinstance(one, ast.Constant))
    yield from (one.value for one in parts if isinstance(one.value, str))


def _is_lost(begin: str) -> bool:
    """Whether a path with this beginning is in a folder of the container that SageMaker does not upload."""
    return begin not in ("", "/") and not begin.startswith(_UNKNOWN_BEGINS) and "://" not in begin


class _Paths:
    def __init__(self, syntax: Syntax, values: Values) -> None:
        self._syntax, self._values = syntax, values
        self._assigned: dict[str, list[ast.expr]] = {}
        for name, value in syntax.assigned:
            self._assigned.setdefault(name, []).append(value)
        self._functions: dict[str, list[Function]] = {}
        for one in syntax.all(ast.FunctionDef, ast.AsyncFunctionDef):
            for parameter in (*one.args.posonlyargs, *one.args.args):
                self._functions.setdefault(parameter.arg, []).append(one)
        self._calls: dict[str, list[ast.Call]] = {}
        for call in syntax.calls:
            self._calls.setdefault(call.name, []).append(call.node)

    def begins(self, path: ast.expr) -> frozenset[str]:
        """All texts with which ``path`` may begin; empty if one of them is not known."""
        found: set[str] = set()
        waiting = [path]
        for _ in range(_MOST_STEPS):
            if not waiting:
                return frozenset(found)
            node = waiting.pop()
            option = self._values.option(node)
            value = option.default if option is not None else node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str):
                found.add(value)
                continue
            parts = self._parts(node) if option is None else []
            if not parts:
                return frozenset()
            waiting += parts
        return frozenset()

    def _parts(self, node: ast.expr) -> list[ast.expr]:
        """Expressions of which one begins as ``node`` does; empty if they are not known."""
        parts: list[ast.expr] = []
        match node:
            case ast.IfExp():
                parts = [node.body, node.orelse]
            case ast.BinOp(op=ast.Add() | ast.Div() | ast.Mod()):
                parts = [node.left]
            case ast.JoinedStr():
                parts = node.values[:1]
            case ast.FormattedValue():
                parts = [node.value]
            case ast.Call(func=ast.Attribute(attr=name, value=path)) if name in _METHODS_OF_PATHS:
                parts = [path]
            case ast.Call() if self._syntax.full_name(node.func) in _OF_PATHS:
                parts = node.args[:1]
            case ast.Name():
                parts = [*self._assigned.get(node.id, ()), *islice(self._passed(node.id), _MOST_STEPS)]
            case ast.Attribute():
                parts = self._assigned.get(node.attr, [])
        return parts

    def _passed(self, name: str) -> Iterator[ast.expr]:
        """What calls in the file pass for the parameter ``name``, or its default."""
        for function in self._functions.get(name, ()):
            names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
            default = dict(zip(names[::-1], function.args.defaults[::-1], strict=False)).get(name, _UNKNOWN)
            index = names.index(name) - int(names[0] in ("self", "cls"))
            calls = self._calls.get(function.name, [])
            for call in calls:
                given = call.args[index] if len(call.args) > index else default
                yield keywords(call).get(name, given) if _is_plain(call) else _UNKNOWN
            yield from [] if calls else [_UNKNOWN]


def _is_plain(call: ast.Call) -> bool:
    """Whether the call has no ``*`` and no ``**``."""
    return not any(isinstance(one, ast.Starred) for one in call.args) and all(one.arg for one in call.keywords)
