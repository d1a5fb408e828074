"""The base class of the readers of argparse, click and absl, and functions for all of them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from smdp_launch.source.commandline.arguments import Argument, Declarations, Parser, Style, Subcommands
from smdp_launch.source.commandline.options import Value, full_names, literal
from smdp_launch.source.syntax.scopes import Nodes, Scope, dotted

_LARGEST_RANGE = 10_000


class Reader:
    """Collects the declarations of one module.

    Args:
        known: names with literal values.
    """

    style: Style

    def __init__(self, nodes: Nodes, known: Mapping[str, Value]) -> None:
        self.known = known
        self.full_name = full_names(nodes)
        self.arguments: list[Argument] = []
        self.parsers: list[Parser] = []
        self.reading: list[Parser] = []
        self.subcommands: list[Subcommands] = []
        self.borrowed: set[str] = set()
        self.is_open = False
        self.is_unknown = False
        self.is_tolerant = False
        self.abbreviates = True
        self.read(nodes)

    def read(self, nodes: Nodes) -> None:
        raise NotImplementedError

    def add_to(self, module: Declarations) -> Declarations:
        return module._replace(
            style=self.style,
            arguments=tuple(self.arguments),
            parsers=tuple(self.parsers),
            reading=tuple(self.reading),
            subcommands=tuple(self.subcommands),
            borrowed=frozenset(self.borrowed),
            is_open=self.is_open,
            is_unknown=self.is_unknown,
            is_tolerant=self.is_tolerant,
            abbreviates=self.abbreviates,
        )


def parser_at(call: ast.Call, scope: Scope) -> Parser:
    return Parser(scope.function.name if scope.function is not None else None, scope.is_main, call.lineno)


def unpacks(call: ast.Call) -> bool:
    """Whether the call has arguments with ``*`` or ``**``, which cannot be read."""
    return any(one.arg is None for one in call.keywords) or any(isinstance(one, ast.Starred) for one in call.args)


def keyword_value(kwargs: Mapping[str, ast.expr], name: str, known: Mapping[str, Value]) -> Value:
    """The literal value of a keyword argument; None if it is missing or not a literal."""
    return literal(kwargs[name], known) if name in kwargs else None


def choices_of(node: ast.expr | None, known: Mapping[str, Value]) -> tuple[Value, ...] | None:
    """The allowed values in an argument's ``choices``; None if they cannot be read."""
    if isinstance(node, ast.Call) and dotted(node.func) == "range":
        return _range([literal(one, known) for one in node.args])
    if isinstance(node, ast.Call) and _is_copy(node):
        return choices_of(node.args[0] if node.args else node.func.value, known)  # type: ignore[attr-defined]
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        values: list[Value] = [literal(one, known) for one in node.elts]
    elif isinstance(node, ast.Dict):
        values = [None if one is None else literal(one, known) for one in node.keys]
    else:
        named = literal(node, known) if node is not None else None
        values = list(named) if isinstance(named, list | dict) else [None]
    return None if None in values else tuple(values)


def _is_copy(call: ast.Call) -> bool:
    """Whether this is ``sorted(NAMES)``, ``list(NAMES)``, ``NAMES.keys()`` or the like."""
    if call.keywords:
        return False
    copies = dotted(call.func) in ("sorted", "list", "tuple", "set", "frozenset") and len(call.args) == 1
    return copies or (isinstance(call.func, ast.Attribute) and call.func.attr == "keys" and not call.args)


def _range(bounds: Sequence[Value]) -> tuple[Value, ...] | None:
    integers = [one for one in bounds if isinstance(one, int)]
    if len(integers) != len(bounds) or not integers or 0 in integers[2:]:
        return None
    numbers = range(*integers)
    return tuple(numbers) if len(numbers) <= _LARGEST_RANGE else None
