"""The nodes of a syntax tree: each once, in the order of the file, with its scope."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from smdp_launch.source.syntax.scopes import Nodes, Scope

#: Kinds that no reader needs: contexts, operators, names of imports and handlers, ignored type comments.
LEFT_OUT = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.alias, ast.type_ignore)
#: Files of the standard library with all statements and expressions of Python.
FILES = sorted(Path(ast.__file__).parent.glob("*.py"))[::6]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_node_is_listed_once(path: Path) -> None:
    tree = ast.parse(path.read_bytes())
    expected = Counter(type(one) for one in ast.walk(tree) if not isinstance(one, LEFT_OUT))
    nodes = Nodes(tree)
    assert {kind: len(nodes.of(kind)) for kind in expected} == expected
    assert all(len({id(one) for one in nodes.of(kind)}) == count for kind, count in expected.items())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_calls_are_in_file_order(path: Path) -> None:
    nodes = Nodes(ast.parse(path.read_bytes()))
    names = {one.name for one in nodes.calls}
    assert nodes.called(*names) == nodes.calls
    statements = [one.lineno for one in nodes.of(ast.Assign)]
    assert statements == sorted(statements)


def test_scope_ends_with_its_statement() -> None:
    tree = ast.parse(
        "a()\n"
        "def f():\n    b()\n    if x:\n        c()\n    d()\n"
        "for i in j:\n    e()\n"
        "if __name__ == '__main__':\n    g()\nelse:\n    h()\n"
        "k()\n"
    )

    def values(scope: Scope) -> tuple[str | None, bool, bool]:
        return scope.function.name if scope.function else None, scope.is_conditional, scope.is_main

    assert {one.name: values(one.scope) for one in Nodes(tree).calls} == {
        "a": (None, False, False),
        "b": ("f", False, False),
        "c": ("f", True, False),
        "d": ("f", False, False),
        "e": (None, True, False),
        "g": (None, False, True),
        "h": (None, True, False),
        "k": (None, False, False),
    }


def test_field_of_newer_python_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ast.Return, "_fields", ("value", "is_lazy"))
    tree = ast.parse("def f():\n    return g()\n")
    for one in ast.walk(tree):
        if isinstance(one, ast.Return):
            one.is_lazy = 0  # type: ignore[attr-defined]
    assert [one.name for one in Nodes(tree).calls] == ["g"]
