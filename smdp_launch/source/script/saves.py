"""Calls that write a model or a checkpoint to a path."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from smdp_launch.source.commandline.options import Option
from smdp_launch.source.script.ranks import Ranks
from smdp_launch.source.script.values import Values
from smdp_launch.source.syntax.scopes import dotted, tail
from smdp_launch.source.syntax.tree import Call, Extent, Mark, Position, Spots, Syntax, end, keywords, start, words

_SAVES = {
    *("torch.save", "torch.jit.save", "tensorflow.saved_model.save", "keras.models.save_model"),
    *("keras.saving.save_model", "tensorflow.keras.models.save_model", "tensorflow.keras.saving.save_model"),
}
#: ``model.fit`` saves to its path.
_CALLBACKS = {"keras.callbacks.ModelCheckpoint", "tensorflow.keras.callbacks.ModelCheckpoint"}
#: The methods that save, by class.
_CHECKPOINTS = {
    "tensorflow.train.Checkpoint": {"save", "write"},
    "tensorflow.train.CheckpointManager": {"save"},
}
#: Classes whose folder is by default the one that ``checkpoint`` of the job file copies to S3.
_OF_ENGINE = {
    f"smdp_engine.checkpoint.{name}" for name in ("Checkpoints", "ShardedCheckpoints", "TensorFlowCheckpoints")
}
_MODEL_METHODS = {"save_pretrained", "save_weights"}
#: A limit for hostile scripts: each call is compared with all conditions of the file.
_MOST_SAVES = 50
#: The longest chain of names from a callback, such as a list that is added to another list.
_MOST_NAMES = 4
_SAVED_MODEL = re.compile(r"(^|_)(model|net|network|checkpoint|ckpt)$", re.IGNORECASE)
_BUFFERS = {
    *("BytesIO", "StringIO", "TemporaryFile", "NamedTemporaryFile", "SpooledTemporaryFile", "TemporaryDirectory"),
    *("mkdtemp", "mkstemp", "mktemp", "gettempdir"),
}


class Save(NamedTuple):
    """A call that writes a model or checkpoint to a path without a rank in it.

    Args:
        at: its position in the syntax tree.
        call: the called name in the code, such as ``torch.save``.
        options: command line options that are conditions of the call.
    """

    mark: Mark
    at: Position
    call: str
    options: tuple[Option, ...] = ()


def saves(syntax: Syntax, ranks: Ranks, values: Values) -> Iterator[Save]:
    made = {name: value for name, value in syntax.assigned if isinstance(value, ast.Call)}
    calls = [one for one in syntax.calls if _is_save(*one) or _checkpoint(syntax, one.node, made)][:_MOST_SAVES]
    alternatives = list(_alternatives(syntax, calls)) if calls else []
    calls = [one for one in calls if not _is_within(alternatives, one.node)]
    if not calls:
        return
    by_rank, guards = ranks.paths(), ranks.guards()
    makers = _BUFFERS & syntax.uses.keys()
    buffers = {name for name, value in syntax.assigned if makers & words(value)} if makers else set()
    for call, last, full_name in calls:
        path = [*call.args[1:2], *(value for key, value in keywords(call).items() if key != "obj")]
        path = path if full_name in _SAVES else [*call.args[:1], *path]
        checkpoint = _checkpoint(syntax, call, made)
        if checkpoint is not None:  # a CheckpointManager has its folder from there
            path.append(checkpoint)
        if full_name in _CALLBACKS and _is_used_within(syntax, call, guards):
            continue
        if not by_rank.within(*path) and not words(*path) & (buffers | _BUFFERS):
            options = tuple(_options_around(syntax, call, values))
            yield Save(syntax.mark(call), start(call), dotted(call.func) or last, options)


def saves_of_engine(syntax: Syntax) -> Iterator[Mark]:
    """The calls that save with ``smdp_engine.checkpoint`` to its default folder."""
    made = {
        name for name, value in syntax.assigned if isinstance(value, ast.Call) and _has_default_folder(syntax, value)
    }
    for call, name, _ in syntax.calls:
        if name in ("save", "async_save") and isinstance(call.func, ast.Attribute) and tail(call.func.value) in made:
            yield syntax.mark(call.func)


def _has_default_folder(syntax: Syntax, call: ast.Call) -> bool:
    is_default = not call.args and all(one.arg not in (None, "folder") for one in call.keywords)
    return is_default and syntax.full_name(call.func) in _OF_ENGINE


def _alternatives(syntax: Syntax, calls: Iterable[Call]) -> Iterator[Extent]:
    """The conditions with a save in both branches: usually one for distributed training and one for a single GPU."""
    saving = Spots([*(one.node for one in calls), *(one.node for one in syntax.calls if one.name.startswith("save"))])
    for node in syntax.all(ast.If):
        if node.orelse and saving.within(*node.body) and saving.within(*node.orelse):
            yield start(node.body[0]), end(node.orelse[-1])


def _is_within(parts: Iterable[Extent], node: ast.expr) -> bool:
    return any(first <= start(node) < last for first, last in parts)


def _options_around(syntax: Syntax, call: ast.Call, values: Values) -> Iterator[Option]:
    """The options in the conditions around the call, such as ``save_model`` for ``if args.save_model``."""
    for node in syntax.all(ast.If):
        if start(node.body[0]) <= start(call) < end(node.body[-1]):
            parts = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
            yield from (option for one in parts if (option := values.option(one)) is not None)


def _is_save(call: ast.Call, name: str, full_name: str) -> bool:
    if full_name in _SAVES | _CALLBACKS or not isinstance(call.func, ast.Attribute):
        return full_name in _SAVES | _CALLBACKS
    if full_name.startswith("torch.distributed."):
        return False  # all ranks save together
    saves_model = name == "save" and _SAVED_MODEL.search(tail(call.func.value)) is not None
    return name in _MODEL_METHODS or saves_model


def _checkpoint(syntax: Syntax, call: ast.Call, made: Mapping[str, ast.Call]) -> ast.Call | None:
    """The call that created the object of ``tf.train`` that this call saves. ``made``: names with such calls."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("save", "write"):
        return None
    of = call.func.value
    maker = of if isinstance(of, ast.Call) else made.get(tail(of))
    methods = _CHECKPOINTS.get(syntax.full_name(maker.func), set()) if maker is not None else set()
    return maker if call.func.attr in methods else None


def _is_used_within(syntax: Syntax, call: ast.Call, guards: Sequence[Extent]) -> bool:
    """Whether a name with the value of ``call``, or a list of it, is used within ``guards``."""
    names: set[str] = set()
    nodes: list[ast.expr] = [call]
    for _ in range(_MOST_NAMES):
        spots = Spots(nodes)
        more = {name for name, value in syntax.assigned if not _trains(value) and spots.within(value)} - names
        nodes = [one for name in more for one in syntax.uses.get(name, ())]
        if any(_is_within(guards, one) for one in nodes):
            return True
        names |= more
    return False


def _trains(value: ast.expr) -> bool:
    """Whether every rank has used the callbacks before a name gets ``value``, such as a history."""
    return isinstance(value, ast.Call) and tail(value.func).startswith(("fit", "train"))
