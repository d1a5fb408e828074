"""The values that expressions of a file may have: command line options, texts and numbers."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from smdp_launch.source.commandline.options import Option, Value, literal
from smdp_launch.source.syntax.scopes import tail
from smdp_launch.source.syntax.tree import Syntax


class Values:
    """The possible values of the names of one file."""

    def __init__(self, syntax: Syntax, options: Sequence[Option], constants: Mapping[str, Value]) -> None:
        self._constants = constants
        self._options = {one.name.replace("-", "_"): one for one in options}
        self._assigned: dict[str, list[ast.expr]] = {}
        for name, value in syntax.assigned:
            self._assigned.setdefault(name, []).append(value)
        functions = syntax.all(ast.FunctionDef, ast.AsyncFunctionDef)
        self._parameters = {each.arg for one in functions for each in (*one.args.args, *one.args.kwonlyargs)}

    def option(self, node: ast.expr) -> Option | None:
        """The command line option that ``node`` is, if the file assigns nothing else to that name."""
        name = tail(node)
        if name in self._assigned or not isinstance(node, ast.Attribute | ast.Name):
            return None
        is_local = isinstance(node, ast.Name) and name not in self._parameters
        return None if is_local else self._options.get(name)

    def texts(self, node: ast.expr) -> frozenset[str]:
        """All texts that ``node`` may be; empty if one of them cannot be determined."""
        if isinstance(node, ast.Constant):
            return frozenset({node.value}) if isinstance(node.value, str) else frozenset()
        if isinstance(node, ast.IfExp):
            return self._union([node.body, node.orelse])
        option = self.option(node)
        if option is not None:
            return frozenset({option.default}) if isinstance(option.default, str) else frozenset()
        if isinstance(node, ast.Attribute) or (isinstance(node, ast.Name) and node.id not in self._parameters):
            assigned = self._assigned.get(tail(node), [])
            is_simple = not any(isinstance(one, ast.Name | ast.Attribute) for one in assigned)
            return self._union(assigned) if is_simple else frozenset()
        return self._of_mapping(node)

    def _of_mapping(self, node: ast.expr) -> frozenset[str]:
        """The texts of ``{...}[key]``, and of ``{...}.get(key, default)``."""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            return self._union(node.value.values)
        is_get = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
        if is_get and isinstance(node.func.value, ast.Dict):  # type: ignore[attr-defined]
            return self._union([*node.func.value.values, *node.args[1:]])  # type: ignore[attr-defined]
        return frozenset()

    def number(self, node: ast.expr) -> int | None:
        value = literal(node, self._constants)
        option = self.option(node)
        value = option.default if option is not None else value
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _union(self, nodes: Sequence[ast.expr]) -> frozenset[str]:
        each = [self.texts(one) for one in nodes]
        return frozenset().union(*each) if all(each) else frozenset()
