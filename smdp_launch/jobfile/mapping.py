"""A job given as a Python mapping: read as a job file that says the same, without places in a file.

The mapping becomes YAML nodes, not text, so that everything behind the parser is one code for both: what may be a key,
how much is too much, and ``${NAME}``.
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
from smdp_launch.jobfile.yaml.document import MAX_DEPTH, MAX_DIGITS, Document, Layer, fill
from smdp_launch.jobfile.yaml.yaml12 import TAG

#: Stands where the name of a job file would.
NAME = "<mapping>"


def from_mapping(
    data: Mapping[str, Any], folder: Path, variables: Mapping[str, str] | None = None
) -> tuple[Document, list[Diagnostic]]:
    """Args:
    folder: what relative paths in ``data`` start from.
    variables: what ``${NAME}`` may name; None leaves such text as it is.
    """
    document = Document(file=NAME, folder=folder, layer=Layer.PYTHON, top=Span(NAME, 1, 1, 1))
    try:
        root = _mapping(data, "the job", 0)
    except _NotPlainError as error:
        return document, [Diagnostic("SMDP203", str(error), help="write text, numbers, true or false, lists, mappings")]
    return fill(document, root, variables)


def without_places(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    """The diagnostics, those about a mapping without the place that only a file would have."""
    about = (one.span is not None and one.span.file == NAME for one in diagnostics)
    return [
        replace(one, span=None, also=()) if is_ours else one for one, is_ours in zip(diagnostics, about, strict=True)
    ]


#: Not one place: a value between equal marks is one that nobody wrote.
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
    """The kind of a scalar, in YAML's words, and its text."""
    if value is None:
        return "null", ""
    if isinstance(value, bool):
        return "bool", "true" if value else "false"
    if isinstance(value, int):
        # As the parser of files does: so long a number is told as text. Python would not even print it.
        return ("int", str(int(value))) if abs(value) < 10**MAX_DIGITS else ("str", f"{MAX_DIGITS} digits and more")
    if isinstance(value, float):
        return "float", _float(float(value))
    if isinstance(value, str):
        return "str", str.__str__(value)
    if isinstance(value, os.PathLike):
        return "str", str(os.fspath(value))
    raise _NotPlainError(f"{name} is of type {type(value).__name__}, which no job file can say")


def _float(value: float) -> str:
    return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}.get(str(value), repr(value))
