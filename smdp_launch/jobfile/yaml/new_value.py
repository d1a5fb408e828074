"""The text of a new value in a file, with the quotes that its place needs, or as JSON in a file that is JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from smdp_launch.jobfile.yaml import text as yaml_text
from smdp_launch.jobfile.yaml.yaml12 import TAG, kind_of

_STRING = f"{TAG}str"
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def compose(text: str) -> Node | None:
    """The root node of ``text``; None if it is not valid YAML."""
    try:
        node: Node | None = YAML(typ="safe", pure=True).compose(text)
    except (YAMLError, ValueError):
        return None
    return node


def with_quotes(new: str, old: Node, *, in_flow: bool) -> str:
    """``new`` with the quotes of the ``old`` node if both are text, else with the quotes that it needs.

    Args:
        new: one line of YAML.
        in_flow: whether it goes into a mapping or list between brackets.
    """
    node = compose(new)
    if node is None or node.tag != _STRING:
        return new
    value = str(node.value)
    if isinstance(old, ScalarNode) and old.tag == _STRING and old.style in {None, "'"}:
        new = value if old.style is None else _single_quoted(value)
    elif isinstance(old, ScalarNode) and old.style == '"':
        return yaml_text.quoted(value)
    return new if new[:1] in {'"', "'"} or _reads_as_itself(new, in_flow=in_flow) else yaml_text.quoted(value)


def as_json(new: str) -> str | None:
    """``new``, one line of YAML, as JSON; None for what JSON cannot represent."""
    node = compose(new)
    try:
        return _json_of(node) if node is not None else None
    except (ValueError, RecursionError):
        return None


def json_text(value: object) -> str:
    """``value`` in one line of JSON, without escapes for characters outside ASCII.

    Raises:
        ValueError: it is not a finite number, or is text that cannot be encoded.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    text.encode()
    return text


def _json_of(node: Any) -> str:
    if isinstance(node, MappingNode):
        return "{" + ", ".join(f"{json_text(str(key.value))}: {_json_of(value)}" for key, value in node.value) + "}"
    if isinstance(node, SequenceNode):
        return "[" + ", ".join(_json_of(one) for one in node.value) + "]"
    text = str(node.value)
    kind = kind_of(text) if node.style is None else "str"
    if kind == "str" or _JSON_NUMBER.fullmatch(text):
        return json_text(text) if kind == "str" else text
    if kind == "int":
        return str(int(text, 0 if text[1:2] in {"x", "o"} else 10))
    return json_text({"null": None, "bool": text.lower() == "true"}[kind] if kind != "float" else float(text))


def _single_quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'" if value.isprintable() else yaml_text.quoted(value)


def _reads_as_itself(plain: str, *, in_flow: bool) -> bool:
    """Whether a mapping of this form reads ``plain`` without quotes as the same text."""
    node = compose(f"{{a: {plain}, b: c}}" if in_flow else f"a: {plain}\nb: c")
    if not isinstance(node, MappingNode) or [key.value for key, _ in node.value] != ["a", "b"]:
        return False
    value = node.value[0][1]
    return bool(value.tag == _STRING and value.value == plain)
