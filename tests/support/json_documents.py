"""JSON documents that commands print, and their schemas."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from tests.conftest import ROOT

SCHEMAS = {path.name.removesuffix(".schema.json"): path for path in (ROOT / "docs" / "schemas").glob("*.schema.json")}


def sealed(node: Any) -> Any:
    """The schema with unknown fields forbidden."""
    if isinstance(node, list):
        return [sealed(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {name: sealed(value) for name, value in node.items()}
    return {"additionalProperties": False, **made} if "type" in node and "properties" in node else made


def validator(name: str) -> Draft202012Validator:
    texts = {path.name: sealed(json.loads(path.read_text())) for path in SCHEMAS.values()}
    registry: Registry[Any] = Registry().with_resources(
        [(name, Resource.from_contents(text)) for name, text in texts.items()]
    )
    return Draft202012Validator(texts[SCHEMAS[name].name], registry=registry, format_checker=FormatChecker())


def the_document(ran: subprocess.CompletedProcess[str], schema: str) -> Any:
    """Parse standard output. Require that it is one value of the schema and that standard error has no JSON."""
    document, end = json.JSONDecoder().raw_decode(ran.stdout)
    assert ran.stdout[end:] == "\n"
    assert not re.search(r"^\s*[{}\[\]]", ran.stderr, re.MULTILINE), ran.stderr
    assert "Traceback" not in ran.stderr
    validator(schema).validate(document)
    return document


def documents(output: str) -> list[dict[str, Any]]:
    """The lines of the output, each validated with its schema."""
    found = [json.loads(line, parse_constant=pytest.fail) for line in output.removesuffix("\n").split("\n")]
    for one in found:
        validator("error" if "error" in one else "follow").validate(one)
    return found


def seen(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in found if one.get("seen") == kind]
