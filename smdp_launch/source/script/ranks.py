"""Which parts of a file only some of the ranks run.

A name counts as a rank if it sounds like one, or if its value is computed from one. This accepts too many names: an
error that is not reported does less harm than a false warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from smdp_launch.source.syntax.scopes import tail
from smdp_launch.source.syntax.tree import Extent, Spots, Syntax, end, start

_RANK = re.compile(
    r"rank|is_main|main_proc|master|chief|primary|leader|process_(index|idx|id)|proc_id|is_root|on_root|global_zero"
    r"|coordinator|gpu|device_id|dev_id|node_id|worker_id|machine_id|first_worker|current_device|get_dist_info|gethostname|getpid",
    re.IGNORECASE,
)
_RANK_KEY = re.compile(r"(\w*_)?rank|is_(main|master|first|chief)\w*")
_RANK_VARIABLE = re.compile(r"[A-Z_]*RANK")
#: Calls that make a path, or a part of one, from their arguments.
_PATH_MAKERS = {"join", "format", "Path", "str", "replace", "with_name", "with_suffix", "with_stem", "open", "joinpath"}
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_EXITS = {"exit", "_exit", "quit"}
_DECISIONS = (ast.Call, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.IfExp, ast.Subscript)


#: The longest chain of names from a rank, such as a flag that is computed from another flag.
_MOST_STEPS = 4


class Ranks:
    """The names of one file that are a rank, or depend on one."""

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
        values = list(self._values())
        for _ in range(_MOST_STEPS):
            flags = {name for name, value in values if name not in self._names and self._decides(value)}
            flags |= set(self._deciding_functions()) - self._names
            if not flags:
                break
            self._names |= flags
            self.spots = self._spots(self._names)

    def paths(self) -> Spots:
        """Names whose value depends on a rank, including paths."""
        paths = {
            name
            for name, value in self._syntax.assigned
            if (isinstance(value, (ast.JoinedStr, ast.BinOp)) or _makes_path(value)) and self.spots.within(value)
        }
        return self._spots(self._names | paths)

    def guards(self) -> list[Extent]:
        """Extents that only some of the ranks run."""
        return [*self._conditions(), *self._after_exits(), *self._decorated()] if self.spots else []

    def _spots(self, names: set[str]) -> Spots:
        named = [node for name in names for node in self._syntax.uses.get(name, ())]
        return Spots([*named, *self._variables])

    def _values(self) -> Iterator[tuple[str, ast.expr]]:
        """Names with values that may depend on a rank, such as ``first`` for ``first = get_rank() == 0`` and ``me`` for
        ``me = int(os.environ["RANK"])``. A model on the device of a rank is not one of them."""
        for name, value in self._syntax.assigned:
            if isinstance(value, _DECISIONS):
                yield name, value
        for call, _, _ in self._syntax.calls:
            for one in call.keywords:
                if one.arg and isinstance(one.value, (ast.Compare, ast.BoolOp)):
                    yield one.arg, one.value
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
        """Parameters with their arguments, such as ``last`` for ``def save(state, last)`` and the call
        ``save(state, rank == 0)``."""
        parameters = {one.name: [each.arg for each in one.args.args] for one in self._syntax.all(ast.FunctionDef)}
        for call, called, _ in self._syntax.calls:
            names = parameters.get(called, []) if call.args else []
            offset = 1 if names[:1] in (["self"], ["cls"]) else 0
            for name, argument in zip(names[offset:], call.args, strict=False):
                if isinstance(argument, (ast.Compare, ast.BoolOp, ast.IfExp)):
                    yield name, argument

    def _conditions(self) -> Iterator[Extent]:
        for node in self._syntax.all(ast.If):
            if self.spots.within(node.test):
                yield start(node.body[0]), end(node)
        for one in self._syntax.all(ast.IfExp, ast.BoolOp):
            if self.spots.within(one):
                yield start(one), end(one)

    def _after_exits(self) -> Iterator[Extent]:
        """The rest of a function after ``if rank != 0: return`` or ``assert rank == 0``."""
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
