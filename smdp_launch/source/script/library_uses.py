"""The uses of AWS's library for TensorFlow in one file, and the keyword arguments of its calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from smdp_launch.source.syntax.extents import Extents
from smdp_launch.source.syntax.tree import Mark, Syntax, start

#: AWS's library for TensorFlow, and the native engine's module of this name.
TENSORFLOW_LIBRARY = "smdistributed.dataparallel.tensorflow"
_PREFIX = f"{TENSORFLOW_LIBRARY}."


class LibraryUse(NamedTuple):
    """A use of a name of ``TENSORFLOW_LIBRARY``: of an attribute of the module, or an import from it.

    Args:
        certain: it is at the top level of the file, outside of ``if`` and ``try``.
        conditional: it may not run.
    """

    mark: Mark
    name: str
    certain: bool
    conditional: bool


class Argument(NamedTuple):
    """A keyword argument.

    Args:
        text: its value, if this is a literal text.
        reference: the full name of its value, such as ``smdistributed.dataparallel.tensorflow.ReduceOp.SUM``; empty if
            the value has no name.
    """

    mark: Mark
    name: str
    text: str | None
    reference: str


class LibraryCall(NamedTuple):
    """A call of a name of ``TENSORFLOW_LIBRARY``. ``use`` has the place of the called name."""

    use: LibraryUse
    arguments: tuple[Argument, ...]


def library_uses(syntax: Syntax, around: Extents) -> list[LibraryUse]:
    """All uses, in the order of the file."""
    uses = [
        (one, syntax.full_name(one).removeprefix(_PREFIX))
        for one in syntax.all(ast.Attribute)
        if isinstance(one.ctx, ast.Load) and syntax.full_name(one).startswith(_PREFIX)
    ]
    found = [_use(syntax, around, one, name) for one, name in uses if "." not in name]
    for node in syntax.all(ast.Import, ast.ImportFrom):
        base = f"{node.module}." if isinstance(node, ast.ImportFrom) and not node.level else ""
        names = [f"{base}{one.name}" for one in node.names]
        below = [one.removeprefix(_PREFIX).partition(".")[0] for one in names if one.startswith(_PREFIX)]
        found += [_use(syntax, around, node, name) for name in below]
    return sorted(found)


def library_calls(syntax: Syntax, around: Extents) -> Iterator[LibraryCall]:
    """All calls with keyword arguments, in the order of the file."""
    for call, _, full_name in syntax.calls:
        if call.keywords and full_name.startswith(_PREFIX):
            arguments = tuple(_argument(syntax, one, one.arg) for one in call.keywords if one.arg is not None)
            yield LibraryCall(_use(syntax, around, call.func, full_name.removeprefix(_PREFIX)), arguments)


def _use(syntax: Syntax, around: Extents, node: ast.expr | ast.stmt, name: str) -> LibraryUse:
    conditional = around.is_conditional(start(node))
    certain = not conditional and around.function(start(node)) is None
    return LibraryUse(syntax.mark(node), name, certain, conditional)


def _argument(syntax: Syntax, node: ast.keyword, name: str) -> Argument:
    value = node.value
    text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else None
    return Argument(syntax.mark(node), name, text, syntax.full_name(value))
