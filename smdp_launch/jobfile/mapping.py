"""A job as a Python mapping: it is read like a job file with the same values, without places in a file.

The mapping becomes YAML nodes, not text. So the same code checks keys and sizes and replaces ``${NAME}`` for both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml.error import FileMark
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from smdp_launch.diagnostics import Diagnostic, Span
from smdp_launch.jobfile.yaml.document import ConfigSource, Document, Parsed
from smdp_launch.jobfile.yaml.parser import MAX_DEPTH, MAX_DIGITS, fill
from smdp_launch.jobfile.yaml.yaml12 import TAG

#: In place of the name of a job file.
NAME = "<mapping>"


def from_mapping(data: Mapping[str, Any], folder: Path, variables: Mapping[str, str] | None = None) -> Parsed:
    """Read ``data`` as a job file.

    Args:
        folder: the start of relative paths in ``data``.
        variables: the values for ``${NAME}``; None leaves such text as it is.
    """
    document = Document(file=NAME, folder=folder, source=ConfigSource.PYTHON, top=Span(NAME, 1, 1, 1))
    try:
        root = _mapping(data, "the job", 0)
    except _NotPlainError as error:
        return document, [Diagnostic("SMDP203", str(error), help="use text, numbers, true, false, lists and mappings")]
    return fill(document, root, variables)


def without_places(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """The diagnostics, those about a mapping without a place, which only a file has."""
    return [
        replace(one, span=None, also=()) if one.span is not None and one.span.file == NAME else one
        for one in diagnostics
    ]


#: Two different places: a value between equal marks counts as empty.
_START, _END = FileMark(NAME, 0, 0, 0), FileMark(NAME, 1, 0, 1)


class _NotPlainError(Exception):
    pass


def _node(value: Any, name: str, depth: int) -> Node:
    if isinstance(value, Mapping):
        return _mapping(value, name, depth)
    if isinstance(value, list | tuple):
        _check_depth(depth)
        items = [_node(one, f"{name}[{index}]", depth + 1) for index, one in enumerate(value)]
        return SequenceNode(f"{TAG}seq", items, _START, _END)
    return _scalar(value, name)


def _mapping(value: Mapping[Any, Any], name: str, depth: int) -> MappingNode:
    _check_depth(depth)
    pairs = [(_key(key), _node(one, f"{name}.{key}", depth + 1)) for key, one in value.items()]
    return MappingNode(f"{TAG}map", pairs, _START, _END)


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _NotPlainError(f"the job has more than {MAX_DEPTH} levels")


def _scalar(value: Any, name: str) -> ScalarNode:
    kind, text = _plain(value, name)
    return ScalarNode(f"{TAG}{kind}", text, _START, _END)


def _key(value: Any) -> ScalarNode:
    node = _scalar(value, "a key")
    node.style = '"'  # "<<" is a key like any other
    return node


def _plain(value: Any, name: str) -> tuple[str, str]:
    """The kind of a scalar in YAML, and its text."""
    if value is None:
        return "null", ""
    if isinstance(value, bool):
        return "bool", "true" if value else "false"
    if isinstance(value, int):
        # As in a file, such a long number is text. Python refuses to print it.
        return ("int", str(int(value))) if abs(value) < 10**MAX_DIGITS else ("str", f"{MAX_DIGITS} digits and more")
    if isinstance(value, float):
        return "float", _float(float(value))
    if isinstance(value, str):
        return "str", str.__str__(value)
    if isinstance(value, os.PathLike):
        return "str", str(os.fspath(value))
    raise _NotPlainError(f"{name} is of type {type(value).__name__}, which a job file cannot represent")


def _float(value: float) -> str:
    return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}.get(str(value), repr(value))
