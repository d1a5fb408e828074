"""The job file's schema as editors read it: JSON Schema draft 7, which YAML language servers know."""

from __future__ import annotations

import json
from typing import Any

from smdp_launch.jobfile.model.spec import JobSpec

#: What a defaults file or the environment may say in the job file's place: no editor should miss it.
_SAID_ELSEWHERE = frozenset({"role", "region", "output"})

_VARIABLE = {"type": "string", "pattern": r"\$\{[^}]*\}", "description": "${NAME} of an environment variable"}


def editor_schema() -> dict[str, Any]:
    """What ``smdp-launch schema`` prints. The same job file gives the same findings, apart from what rules know."""
    schema = _draft7(JobSpec.model_json_schema(by_alias=True))
    schema["required"] = [one for one in schema["required"] if one not in _SAID_ELSEWHERE]
    schema["definitions"]["variable"] = _VARIABLE
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "smdp-launch job file"}
    return head | {key: value for key, value in schema.items() if key != "title"}


def schema_text() -> str:
    return json.dumps(editor_schema(), indent=2, ensure_ascii=False) + "\n"


def _draft7(node: Any) -> Any:
    """Definitions under their old name, no titles that repeat a key, and ``${NAME}`` wherever a value may stand."""
    if isinstance(node, list):
        return [_draft7(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {_renamed(key): _draft7_member(key, value) for key, value in node.items() if not _is_title(key, value)}
    for pattern, values in made.pop("patternProperties", {}).items():
        # As pydantic writes it, a name that does not match would pass.
        made |= {"propertyNames": {"pattern": pattern}, "additionalProperties": values}
    return _or_variable(made) if _is_constrained_scalar(made) else made


def _draft7_member(key: str, value: Any) -> Any:
    if key in {"properties", "patternProperties", "$defs"}:
        return {name: _draft7(one) for name, one in value.items()}
    if key == "propertyNames":
        # Names hold no variables.
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
