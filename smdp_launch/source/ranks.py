"""Which parts of a file only some of the ranks run.

A name counts as one that holds a rank if it is called like one, or is made from one. Where that is too generous a
mistake goes unnoticed; where it were too strict, a sound script would get a warning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from smdp_launch.source.scopes import tail
from smdp_launch.source.syntax import Extent, Spots, Syntax, end, start

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
        for _ in range(_MOST_STEPS):
            flags = set(self._flags()) - self._names
            if not flags:
                break
            self._names |= flags
            self.spots = self._spots(self._names)

    def paths(self) -> Spots:
        """Names whose value depends on a rank, as the text of a path may."""
        made = {
            name
            for name, value in assigned(self._syntax)
            if self.spots.within(value) and (isinstance(value, ast.JoinedStr | ast.BinOp) or _makes_path(value))
        }
        return self._spots(self._names | made)

    def guards(self) -> list[Extent]:
        """Extents that only some of the ranks run."""
        return [*self._conditions(), *self._behind_exits(), *self._decorated()] if self.spots else []

    def _spots(self, names: set[str]) -> Spots:
        named = [node for name in names for node in self._syntax.uses.get(name, ())]
        return Spots([*named, *self._variables])

    def _flags(self) -> Iterator[str]:
        """``first`` for ``first = get_rank() == 0``, ``me`` for ``me = int(os.environ["RANK"])``, and the like."""
        for name, value in assigned(self._syntax):
            if self._keeps_rank(value) and self.spots.within(value):
                yield name
        for call, _, _ in self._syntax.calls:
            for given in call.keywords:
                if given.arg and isinstance(given.value, ast.Compare | ast.BoolOp) and self.spots.within(given.value):
                    yield given.arg
        yield from self._deciding_functions()
        yield from self._deciding_parameters()

    def _keeps_rank(self, value: ast.expr) -> bool:
        """Does ``value`` say as much as the rank that is in it? A model on the device of a rank does not."""
        if isinstance(value, ast.Call):
            return tail(value.func) in {"int", "bool"} or tail(value.func) in self._names
        return isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.IfExp | ast.Subscript)

    def _deciding_functions(self) -> Iterator[str]:
        returns = [node for node in self._syntax.all(ast.Return) if self.spots.within(node.value)]
        for function in self._syntax.all(ast.FunctionDef) if returns else ():
            if any(start(function) <= start(one) < end(function) for one in returns):
                yield function.name

    def _deciding_parameters(self) -> Iterator[str]:
        """``last`` of ``def save(state, last)`` that is called as ``save(state, rank == 0)``."""
        parameters = {one.name: [each.arg for each in one.args.args] for one in self._syntax.all(ast.FunctionDef)}
        for call, called, _ in self._syntax.calls:
            names = parameters.get(called, []) if call.args else []
            offset = 1 if names[:1] in (["self"], ["cls"]) else 0
            for name, given in zip(names[offset:], call.args, strict=False):
                if isinstance(given, ast.Compare | ast.BoolOp | ast.IfExp) and self.spots.within(given):
                    yield name

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


def assigned(syntax: Syntax) -> Iterator[tuple[str, ast.expr]]:
    """Names, and attributes by their last part, with what the file gives them."""
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
    """Each name of ``rank, size = get_rank(), get_world_size()`` with its own value; all with one that has no parts."""
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    values = parts if len(parts) == len(target.elts) else [value] * len(target.elts)
    yield from ((tail(name), one) for name, one in zip(target.elts, values, strict=True) if tail(name))


def _with_items(syntax: Syntax) -> Iterable[ast.withitem]:
    return [item for node in syntax.all(ast.With) for item in node.items]


def _makes_path(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and tail(value.func) in _PATH_MAKERS


def _leaves(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(statement, _ENDS) or (isinstance(call, ast.Call) and tail(call.func) in _EXITS)
