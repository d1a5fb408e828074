"""The job file's schema for editors: JSON Schema draft 7, which YAML language servers support."""

from __future__ import annotations

import json
from typing import Any

from smdp_launch.jobfile.model.spec import JobSpec

#: Required fields that a defaults file or the environment can set: an editor must not require them.
_OPTIONAL_IN_FILE = frozenset({"role", "region", "output"})

_VARIABLE = {
    "type": "string",
    "pattern": r"\$\{[^}]*\}",
    "description": "${NAME}: an environment variable",
}


def editor_schema() -> dict[str, Any]:
    """The output of ``smdp-launch schema``. With it, an editor reports schema errors, but not those of rules."""
    schema = _draft7(JobSpec.model_json_schema(by_alias=True))
    schema["required"] = [one for one in schema["required"] if one not in _OPTIONAL_IN_FILE]
    schema["definitions"]["variable"] = _VARIABLE
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "smdp-launch job file"}
    return head | {key: value for key, value in schema.items() if key != "title"}


def schema_text() -> str:
    return json.dumps(editor_schema(), indent=2, ensure_ascii=False) + "\n"


def _draft7(node: Any) -> Any:
    """The schema in the form of draft 7, without titles that repeat a key, and with ``${NAME}`` for every value."""
    if isinstance(node, list):
        return [_draft7(one) for one in node]
    if not isinstance(node, dict):
        return node
    result = {_renamed(key): _draft7_member(key, value) for key, value in node.items() if not _is_title(key, value)}
    for pattern, values in result.pop("patternProperties", {}).items():
        # In the form that pydantic writes, a name that does not match is valid.
        result |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    return _with_hover_text(_or_variable(result) if _is_constrained_scalar(result) else result)


def _with_hover_text(node: dict[str, Any]) -> dict[str, Any]:
    """Editors escape the code marks of ``description``, and show ``markdownDescription`` as it is."""
    text = node.get("description")
    if not isinstance(text, str) or not ("`" in text or "<" in text):
        return node
    pieces = text.split("`")  # every second one is code, in which nothing is escaped
    escaped = [one if index % 2 else one.replace("<", "&lt;") for index, one in enumerate(pieces)]
    return node | {"markdownDescription": "`".join(escaped)}


def _draft7_member(key: str, value: Any) -> Any:
    if key in {"properties", "patternProperties", "$defs"}:
        return {name: _draft7(one) for name, one in value.items()}
    if key == "propertyNames":
        # Names cannot contain variables.
        return {one: each for one, each in value.items() if one != "title"}
    return value.replace("#/$defs/", "#/definitions/") if key == "$ref" else _draft7(value)


def _renamed(key: str) -> str:
    return "definitions" if key == "$defs" else key


def _is_title(key: str, value: Any) -> bool:
    return key == "title" and isinstance(value, str)


def _is_constrained_scalar(node: dict[str, Any]) -> bool:
    if node.get("type") == "string":
        return "pattern" in node or "enum" in node
    return node.get("type") in {"integer", "number", "boolean"}


def _or_variable(node: dict[str, Any]) -> dict[str, Any]:
    outer = {key: node.pop(key) for key in ("description", "default", "deprecated") if key in node}
    return {"anyOf": [node, {"$ref": "#/definitions/variable"}]} | outer
