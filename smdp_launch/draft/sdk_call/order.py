"""Whether a line of a file runs between the call that makes an object and the call that starts it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable

from smdp_launch.draft.sdk_call.blocks import FUNCTIONS, Block, Blocks, Point, begin_of, end_of, is_conditional

Assigned = ast.Assign | ast.AnnAssign


class Order:
    """The lines between ``call`` and ``start`` of one file. A function that has one of the two runs where it is called.

    Args:
        again: assignments of other objects to the names of the object.
        start: None if it is not known.
    """

    def __init__(self, blocks: Blocks, call: ast.Call, start: ast.Call | None, again: Iterable[Assigned]) -> None:
        self._all, self._call = blocks, call
        self._own = self._blocks(call) | (self._blocks(start) if start is not None else set())
        self._made = self._points(call, end_of)
        self._started = self._points(start, lambda one: end_of(one.func)) if start is not None else []
        self._again = [(self._function(one), begin_of(one)) for one in again if self._blocks(one) <= self._own]

    def is_outside(self, node: ast.expr | ast.stmt) -> bool:
        """Whether ``node`` runs before the object is made, or after it is started."""
        function = self._function(node)
        first, ends = self._span(function)
        return self._has_points(function) and not first < begin_of(node) < max(ends)

    def is_between(self, node: ast.expr | ast.stmt) -> bool:
        """Whether ``node`` runs exactly once between the two calls."""
        function = self._function(node)
        first, ends = self._span(function)
        is_sure = self._blocks(node) <= self._own and self._has_points(function)
        return is_sure and first < begin_of(node) < min(ends)

    def follows(self, node: ast.expr | ast.stmt, assigned: Assigned) -> bool:
        """Whether ``node`` uses the value of ``assigned``, and not that of the call."""
        function, at = self._function(node), begin_of(assigned)
        is_later = self._function(self._call) is not function or at > begin_of(self._call)
        is_same = function is self._function(assigned) and is_later and at < begin_of(node)
        if is_same and self._blocks(assigned) <= self._blocks(node):
            return True
        other = self._all.class_of(assigned)  # self.name is another object in another class
        return other is not None and other is self._all.class_of(node) and other is not self._all.class_of(self._call)

    def _blocks(self, node: ast.AST) -> set[Block]:
        return {one for one in self._all.around(node) if isinstance(one[0], FUNCTIONS) or is_conditional(one)}

    def _function(self, node: ast.AST) -> ast.AST:
        return self._all.scopes(node)[0]

    def _points(self, call: ast.Call, of: Callable[[ast.Call], Point]) -> list[tuple[ast.AST, Point]]:
        """The function of ``call`` and the functions that call this function, with the places of the calls."""
        calls = self._all.calls(self._function(call))
        return [(self._function(one), of(one)) for one in (call, *calls)]

    def _has_points(self, function: ast.AST) -> bool:
        return any(one is function for one, _ in (*self._made, *self._started))

    def _span(self, function: ast.AST) -> tuple[Point, list[Point]]:
        """Where the object is made in ``function``, and where it may be started or replaced."""
        first = min((at for one, at in self._made if one is function), default=(0, 0))
        last = min((at for one, at in self._again if one is function and at > first), default=(sys.maxsize, 0))
        ends = [at for one, at in self._started if one is function and first < at < last]
        return first, ends or [last]
