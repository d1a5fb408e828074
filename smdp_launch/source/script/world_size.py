"""Where a file computes with the number of workers: whether it scales the learning rate, and where it divides the
number by a constant, as in ``batch_size //= dist.get_world_size() // 8``.

Such a division assumes hosts of 8 GPUs. With fewer workers than the constant the quotient is 0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.source.syntax.scopes import dotted, tail
from smdp_launch.source.syntax.tree import Mark, Position, Syntax, end, start, words

_CALLS = {"get_world_size", "get_num_processes"}
_LIBRARIES = ("smdistributed.", "horovod.")
_NAMES = {"world_size", "WORLD_SIZE"}


_RATE = re.compile(r"(^|_)b?lr$|learning_rate")
_SCALE = re.compile(r"world|size|batch|gpu|host|node|worker|scal", re.IGNORECASE)


class Division(NamedTuple):
    """``text`` is the expression, such as ``dist.get_world_size() // 8``: 0 with fewer workers than ``divisor``."""

    mark: Mark
    text: str
    divisor: int


def divisions(syntax: Syntax) -> Iterator[Division]:
    """The whole-number quotients of the world size and a constant above 1."""
    truncated = {id(call.args[0]) for call, name, _ in syntax.calls if name == "int" and len(call.args) == 1}
    for node in syntax.all(ast.BinOp):
        is_whole = isinstance(node.op, ast.FloorDiv) or (isinstance(node.op, ast.Div) and id(node) in truncated)
        if is_whole and isinstance(node.right, ast.Constant) and _is_world_size(node.left, syntax):
            divisor = node.right.value
            if isinstance(divisor, int) and divisor > 1:
                yield Division(syntax.mark(node), syntax.text(node), divisor)


def scales_learning_rate(syntax: Syntax) -> bool:
    """Whether an expression has a learning rate and what it may be scaled by, as ``lr * dist.get_world_size()``."""
    changed: list[tuple[ast.expr, ast.expr]] = [(one.target, one.value) for one in syntax.all(ast.AugAssign)]
    read: Position = (0, 0)
    for node in syntax.all(ast.BinOp):
        if start(node) >= read:  # no part of the last one
            changed.append((node.left, node.right))
            read = end(node)
    found = (words(*each) for each in changed)
    return any(any(map(_RATE.search, each)) and any(map(_SCALE.search, each)) for each in found)


def _is_world_size(node: ast.expr, syntax: Syntax) -> bool:
    if isinstance(node, ast.Call):
        name = syntax.full_name(node.func)
        is_library = name.startswith(_LIBRARIES) and name.endswith(".size")
        is_text = tail(node.func) == "int" and len(node.args) == 1 and _is_variable(node.args[0])
        return tail(node.func) in _CALLS or is_library or is_text
    return tail(node) in _NAMES


def _is_variable(node: ast.expr) -> bool:
    """``os.environ["WORLD_SIZE"]``, or ``os.environ.get("WORLD_SIZE", 1)``."""
    if isinstance(node, ast.Call):
        return bool(node.args) and "environ" in dotted(node.func) and _is_its_name(node.args[0])
    return isinstance(node, ast.Subscript) and "environ" in dotted(node.value) and _is_its_name(node.slice)


def _is_its_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "WORLD_SIZE"
