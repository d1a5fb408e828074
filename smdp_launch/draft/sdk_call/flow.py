"""Which events of a name may have run before a place that uses the name, and which of them surely have.

A line in a conditional block surely has run only at places in the same block. A function runs where it is called.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from smdp_launch.draft.sdk_call.blocks import FUNCTIONS, LOOPS, Block, Blocks, Point, begin_of, is_conditional
from smdp_launch.draft.sdk_call.names import Binding, Event

_CONDITIONS = (ast.If, ast.While, ast.IfExp)
_END = (sys.maxsize, 0)

#: The value of a condition; None if only a run knows it.
Truth = Callable[[ast.AST], bool | None]


class _Time(NamedTuple):
    """When a node runs in a function: a place in the function, and the blocks around the node."""

    at: Point
    blocks: frozenset[Block]


class _Reached(NamedTuple):
    """An event that may have run.

    Args:
        order: functions that are called later have a larger one.
        loops: those in which the event follows the use; empty for an event before the use.
    """

    event: Event
    is_sure: bool
    order: tuple[int, Point]
    blocks: frozenset[Block]
    loops: frozenset[Block] = frozenset()


class Flow:
    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._known: dict[ast.AST, frozenset[Block] | None] = {}

    def history(self, events: Iterable[Event], use: ast.expr, truth: Truth) -> list[tuple[Event, bool]]:
        """The events that may have run before ``use``, in their order, and whether each of them surely has. The first
        is the last binding that surely has run, if there is one."""
        reached = [one for event in events if (one := self._reached(event, use, truth)) is not None]
        reached.sort(key=lambda one: (bool(one.loops), one.order))
        bindings = [one for one in reached if isinstance(one.event, Binding)]
        # A name without another binding has its value, or using it is an error.
        sure = [one for one in bindings if one.is_sure] or (bindings if len(bindings) == 1 else [])
        if not sure:
            return [(one.event, False) for one in reached]
        last = sure[-1]
        later = reached[reached.index(last) + 1 :]
        # In a loop that binds the name before its use, an event after the use has no effect on the use.
        later = [one for one in later if not one.loops or one.loops - last.blocks]
        return [(last.event, True), *((one.event, one.is_sure) for one in later)]

    def _reached(self, event: Event, use: ast.expr, truth: Truth) -> _Reached | None:
        scopes = self._blocks.scopes(event.node, FUNCTIONS)
        common = next(one for one in self._blocks.scopes(use, FUNCTIONS) if one in scopes)
        times = self._times(event.node, event.after, common, truth)
        if not times:
            return None
        uses = self._times(use, begin_of(use), common, truth, is_use=True)
        first, last = (uses[0].at, uses[-1].at) if uses else (self._defined(use, common), _END)
        blocks = times[-1].blocks
        order = (len(self._blocks.scopes(common, FUNCTIONS)), times[-1].at)
        if times[0].at <= last and not _is_other_branch(blocks, uses):
            is_once = len(times) == 1 and times[0].at <= first
            return _Reached(event, is_once and all(blocks <= one.blocks for one in uses), order, blocks)
        loops = [each for one in uses for each in blocks & one.blocks if isinstance(each[0], LOOPS)]
        return _Reached(event, False, order, blocks, frozenset(loops)) if loops else None

    def _times(self, node: ast.AST, at: Point, scope: ast.AST, truth: Truth, is_use: bool = False) -> list[_Time]:
        """When ``node`` runs in ``scope``: in another function, when this function is called. Only an event has the
        blocks of calls in further functions: several of them may lead to a use."""
        blocks = self._conditional(node, truth)
        if blocks is None:
            return [_Time(at, frozenset())] if is_use else []
        function = self._blocks.scopes(node, FUNCTIONS)[0]
        if function is scope:
            return [_Time(at, blocks)]
        between, found, functions = set(blocks), [], [function]
        for one in functions:
            for call in self._blocks.calls(one):
                around, outer = self._conditional(call, truth), self._blocks.scopes(call, FUNCTIONS)[0]
                if around is None:
                    continue
                if outer is scope:
                    found.append(_Time(begin_of(call), around))
                    continue
                between |= around
                if outer not in functions:
                    functions.append(outer)
        inner = blocks if is_use else frozenset(between)
        return sorted((_Time(one.at, one.blocks | inner) for one in found), key=lambda one: one.at)

    def _conditional(self, node: ast.AST, truth: Truth) -> frozenset[Block] | None:
        """The blocks around ``node`` in its function, without those whose condition is true; None in a block that
        does not run."""
        if node not in self._known:
            self._known[node] = self._runs_in(node, truth)
        return self._known[node]

    def _runs_in(self, node: ast.AST, truth: Truth) -> frozenset[Block] | None:
        function, found = self._blocks.scopes(node, FUNCTIONS)[0], set()
        for one, field in self._blocks.around(node):
            if one is function:
                break
            if not is_conditional((one, field)) or (isinstance(one, ast.Return) and not self._may_run(one, truth)):
                continue
            is_true = truth(one) if isinstance(one, _CONDITIONS) else None
            if is_true is not None and is_true != (field == "body"):
                return None
            if is_true is None or isinstance(one, LOOPS):
                found.add((one, "body" if field == "target" else field))
        return frozenset(found)

    def _may_run(self, node: ast.AST, truth: Truth) -> bool:
        return self._conditional(node, truth) is not None

    def _defined(self, use: ast.AST, scope: ast.AST) -> Point:
        """Where the function of ``use`` is defined in ``scope``."""
        functions = self._blocks.scopes(use, FUNCTIONS)
        outer = functions[functions.index(scope) - 1]
        return (outer.lineno, outer.col_offset) if isinstance(outer, ast.stmt) else _END


def _is_other_branch(blocks: frozenset[Block], uses: Sequence[_Time]) -> bool:
    """Whether each use is in the other branch of a condition."""
    fields: dict[ast.AST, str] = {node: field for node, field in blocks if isinstance(node, ast.If | ast.IfExp)}
    return bool(uses) and all(any(fields.get(node, at) != at for node, at in one.blocks) for one in uses)
