"""A parsed file for the readers: nodes by kind, full names of calls, and places for diagnostics."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, overload

from smdp_launch.source.syntax.scopes import Nodes, dotted, tail

#: Line and column as the syntax tree counts them: lines from 1, columns in bytes from 0.
Position = tuple[int, int]
#: From a position up to, but not including, another.
Extent = tuple[Position, Position]
_One = TypeVar("_One", bound=ast.AST)
_Other = TypeVar("_Other", bound=ast.AST)
_Third = TypeVar("_Third", bound=ast.AST)


class Mark(NamedTuple):
    """A place in a file. Lines and columns count from 1, columns in characters. ``end_column`` is the first column
    after the place, on the same line."""

    line: int
    column: int
    end_column: int


class Call(NamedTuple):
    """A call with the last part of the called name, and the full name from ``Syntax.full_name``."""

    node: ast.Call
    name: str
    full_name: str


class Syntax:
    """One file.

    Args:
        nodes: all of its tree.
        lines: its text.
    """

    def __init__(self, nodes: Nodes, lines: Sequence[str]) -> None:
        self._nodes = nodes
        self._lines = lines
        self._full_names = dict(self._imported())
        #: The uses of each name and of each attribute, by its last part.
        self.uses: dict[str, list[ast.expr]] = {}
        for name in self.all(ast.Name):
            self.uses.setdefault(name.id, []).append(name)
        for attribute in self.all(ast.Attribute):
            self.uses.setdefault(attribute.attr, []).append(attribute)
        #: Names, and attributes by their last part, with the assigned values.
        self.assigned = list(_assigned(self))
        self.calls = [Call(one.node, one.name, self._full_name(one.path)) for one in nodes.calls]

    @overload
    def all(self, kind: type[_One], /) -> list[_One]: ...

    @overload
    def all(self, kind: type[_One], other: type[_Other], /) -> list[_One | _Other]: ...

    @overload
    def all(self, kind: type[_One], other: type[_Other], third: type[_Third], /) -> list[_One | _Other | _Third]: ...

    def all(self, *kinds: type[ast.AST]) -> list[Any]:
        """The nodes of exactly these kinds. Nodes of one kind are in the order of the file."""
        lists = [self._nodes.of(kind) for kind in kinds]
        return lists[0] if len(lists) == 1 else [node for each in lists for node in each]

    def full_name(self, node: ast.AST) -> str:
        """``torch.distributed.init_process_group`` for ``dist.init_process_group``; empty if ``node`` has no name."""
        return self._full_name(dotted(node))

    def mark(self, node: ast.expr | ast.stmt | ast.keyword) -> Mark:
        line = self._lines[node.lineno - 1] if node.lineno <= len(self._lines) else ""
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        start, stop = _characters(line, node.col_offset), _characters(line, end) if end is not None else len(line)
        return Mark(node.lineno, start + 1, max(stop, start + 1) + 1)

    def text(self, node: ast.expr) -> str:
        """The text of the node in the file, up to the end of its first line."""
        mark = self.mark(node)
        return self._lines[mark.line - 1][mark.column - 1 : mark.end_column - 1]

    def _full_name(self, name: str) -> str:
        first, dot, rest = name.partition(".")
        return f"{self._full_names[first]}{dot}{rest}" if first in self._full_names else name

    def _imported(self) -> Iterator[tuple[str, str]]:
        for node in self.all(ast.Import):
            for one in node.names:
                top = one.name.partition(".")[0]
                yield (one.asname, one.name) if one.asname else (top, top)
        for origin in self.all(ast.ImportFrom):
            module = "." * origin.level + (origin.module or "")
            yield from ((one.asname or one.name, f"{module}.{one.name}") for one in origin.names)


def _assigned(syntax: Syntax) -> Iterator[tuple[str, ast.expr]]:
    """Names, and attributes by their last part, with the assigned values."""
    for node in syntax.all(ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List):
                yield from _unpacked(target, node.value)
            elif tail(target):
                yield tail(target), node.value
    for one in syntax.all(ast.AnnAssign, ast.NamedExpr):
        if one.value is not None and tail(one.target):
            yield tail(one.target), one.value
    for item in _with_items(syntax):
        if item.optional_vars is not None and tail(item.optional_vars):
            yield tail(item.optional_vars), item.context_expr


def _unpacked(target: ast.Tuple | ast.List, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Each name of ``rank, size = get_rank(), get_world_size()`` with its value.

    If the value is not a tuple or list, each name is paired with the whole value.
    """
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    values = parts if len(parts) == len(target.elts) else [value] * len(target.elts)
    yield from ((tail(name), one) for name, one in zip(target.elts, values, strict=True) if tail(name))


def _with_items(syntax: Syntax) -> Iterable[ast.withitem]:
    return [item for node in syntax.all(ast.With) for item in node.items]


class Spots:
    """A set of nodes. ``within`` tests whether one of them is part of another node."""

    def __init__(self, nodes: Iterable[ast.expr]) -> None:
        self._ends = sorted((start(one), end(one)) for one in nodes)

    def __bool__(self) -> bool:
        return bool(self._ends)

    def within(self, *outer: ast.AST | None) -> bool:
        """Whether one of the nodes is part of one of ``outer``."""
        return bool(self._ends) and any(self._is_within(one) for one in outer if one is not None)

    def _is_within(self, outer: ast.AST) -> bool:
        ends, last = self._ends, end(outer)
        for index in range(bisect_left(ends, (start(outer),)), len(ends)):
            first, stop = ends[index]
            if first >= last:
                return False
            if stop <= last:
                return True
        return False


def start(node: Any) -> Position:
    return node.lineno, node.col_offset


def end(node: Any) -> Position:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """The keyword arguments, without ``**``."""
    return {one.arg: one.value for one in call.keywords if one.arg is not None}


def words(*nodes: ast.AST | None) -> set[str]:
    """Identifiers, and texts of one word, within the nodes."""
    identifiers: set[str] = set()
    waiting: list[Any] = list(nodes)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            identifiers.add(node.id)
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str) and node.value.isidentifier():
                identifiers.add(node.value)
        elif isinstance(node, ast.AST):
            if isinstance(node, ast.Attribute):
                identifiers.add(node.attr)
            waiting += [getattr(node, name, None) for name in node._fields]
        elif isinstance(node, list):
            waiting += node
    return identifiers


def _characters(line: str, column: int) -> int:
    return column if line.isascii() else len(line.encode()[:column].decode(errors="replace"))
