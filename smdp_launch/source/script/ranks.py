"""Which parts of a file only some of the ranks run.

A name counts as one that holds a rank if it is called like one, or is made from one. Where that is too generous a
mistake goes unnoticed; where it were too strict, a sound script would get a warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from smdp_launch.source.script.scopes import tail
from smdp_launch.source.script.syntax import Extent, Spots, Syntax, end, start

_RANK = re.compile(
    r"rank|is_main|main_proc|master|chief|primary|leader|process_(index|idx|id)|proc_id|is_root|on_root|global_zero"
    r"|coordinator|gpu|device_id|dev_id|node_id|worker_id|machine_id|first_worker|current_device|get_dist_info|gethostname|getpid",
    re.IGNORECASE,
)
_RANK_KEY = re.compile(r"(\w*_)?rank|is_(main|master|first|chief)\w*")
_RANK_VARIABLE = re.compile(r"[A-Z_]*RANK")
#: Calls that make a path, or text for one, of their arguments.
_PATH_MAKERS = {"join", "format", "Path", "str", "replace", "with_name", "with_suffix", "with_stem", "open", "joinpath"}
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_EXITS = {"exit", "_exit", "quit"}
_DECISIONS = (ast.Call, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.Subscript)


#: From a rank over names that are made of it, such as a flag made from a variable.
_MOST_STEPS = 4


class Ranks:
    """The names of one file that hold a rank, or depend on one."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._names = {one for one in syntax.uses if _RANK.search(one)}
        self._variables = [
            node
            for node in syntax.all(ast.Constant)
            if isinstance(node.value, str) and (_RANK_VARIABLE.fullmatch(node.value) or _RANK_KEY.fullmatch(node.value))
        ]
        self.spots = self._spots(self._names)
        if not self.spots:
            return
        given = list(self._given())
        for _ in range(_MOST_STEPS):
            flags = {name for name, value in given if name not in self._names and self._decides(value)}
            flags |= set(self._deciding_functions()) - self._names
            if not flags:
                break
            self._names |= flags
            self.spots = self._spots(self._names)

    def paths(self) -> Spots:
        """Names whose value depends on a rank, as the text of a path may."""
        made = {
            name
            for name, value in self._syntax.assigned
            if (isinstance(value, (ast.JoinedStr, ast.BinOp)) or _makes_path(value)) and self.spots.within(value)
        }
        return self._spots(self._names | made)

    def guards(self) -> list[Extent]:
        """Extents that only some of the ranks run."""
        return [*self._conditions(), *self._behind_exits(), *self._decorated()] if self.spots else []

    def _spots(self, names: set[str]) -> Spots:
        named = [node for name in names for node in self._syntax.uses.get(name, ())]
        return Spots([*named, *self._variables])

    def _given(self) -> Iterator[tuple[str, ast.expr]]:
        """Names with values that may say as much as a rank: ``first`` for ``first = get_rank() == 0``, ``me`` for
        ``me = int(os.environ["RANK"])``, and the like. A model on the device of a rank does not."""
        for name, value in self._syntax.assigned:
            if isinstance(value, _DECISIONS):
                yield name, value
        for call, _, _ in self._syntax.calls:
            for given in call.keywords:
                if given.arg and isinstance(given.value, (ast.Compare, ast.BoolOp)):
                    yield given.arg, given.value
        yield from self._parameters()

    def _decides(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Call) and tail(value.func) not in {"int", "bool"} | self._names:
            return False
        return self.spots.within(value)

    def _deciding_functions(self) -> Iterator[str]:
        returns = [node for node in self._syntax.all(ast.Return) if self.spots.within(node.value)]
        for function in self._syntax.all(ast.FunctionDef) if returns else ():
            if any(start(function) <= start(one) < end(function) for one in returns):
                yield function.name

    def _parameters(self) -> Iterator[tuple[str, ast.expr]]:
        """``last`` of ``def save(state, last)`` that is called as ``save(state, rank == 0)``."""
        parameters = {one.name: [each.arg for each in one.args.args] for one in self._syntax.all(ast.FunctionDef)}
        for call, called, _ in self._syntax.calls:
            names = parameters.get(called, []) if call.args else []
            offset = 1 if names[:1] in (["self"], ["cls"]) else 0
            for name, given in zip(names[offset:], call.args, strict=False):
                if isinstance(given, (ast.Compare, ast.BoolOp, ast.IfExp)):
                    yield name, given

    def _conditions(self) -> Iterator[Extent]:
        for node in self._syntax.all(ast.If):
            if self.spots.within(node.test):
                yield start(node.body[0]), end(node)
        for one in self._syntax.all(ast.IfExp, ast.BoolOp):
            if self.spots.within(one):
                yield start(one), end(one)

    def _behind_exits(self) -> Iterator[Extent]:
        """What follows ``if rank != 0: return`` in its function, and ``assert rank == 0``."""
        exits = [node for node in self._syntax.all(ast.If) if self.spots.within(node.test) and _leaves(node.body[-1])]
        asserted = [node for node in self._syntax.all(ast.Assert) if self.spots.within(node.test)]
        functions = self._syntax.all(ast.FunctionDef, ast.AsyncFunctionDef)
        for node in (*exits, *asserted):
            around = [end(one) for one in functions if start(one) <= start(node) < end(one)]
            yield end(node), min(around, default=(1 << 60, 0))

    def _decorated(self) -> Iterator[Extent]:
        for one in self._syntax.all(ast.FunctionDef, ast.AsyncFunctionDef):
            if self.spots.within(*one.decorator_list):
                yield start(one), end(one)


def _makes_path(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and tail(value.func) in _PATH_MAKERS


def _leaves(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(statement, _ENDS) or (isinstance(call, ast.Call) and tail(call.func) in _EXITS)
