"""SARIF 2.1.0 (OASIS), which GitHub's code scanning, Azure DevOps and editors read.

The fields are those that GitHub's code scanning requires, and the fixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from urllib.parse import quote

from smdp_launch import __version__
from smdp_launch.checking.job import CheckedJob
from smdp_launch.cli.render.json_output import json_text
from smdp_launch.cli.render.review.places import Entry, codes, entries, relative
from smdp_launch.diagnostics import Diagnostic, Edit, Span
from smdp_launch.rules.base import pages

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(jobs: Sequence[CheckedJob]) -> str:
    found = entries(jobs)
    rules = codes(found)
    run = {
        "tool": {"driver": {"name": "smdp-launch", "version": __version__, "rules": [_rule(one) for one in rules]}},
        # Columns of a diagnostic count characters, not UTF-16 units.
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, rules.index(one.diagnostic.code)) for one in found],
    }
    return json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(code: str) -> dict[str, object]:
    title, page = pages.title(code), pages.page(code)
    return {
        "id": code,
        "shortDescription": {"text": title},
        "fullDescription": {"text": title},
        "help": {"text": page, "markdown": page},
        "properties": {"tags": ["smdp-launch"]},
    }


def _result(one: Entry, rule: int) -> dict[str, object]:
    result: dict[str, object] = {
        "ruleId": one.diagnostic.code,
        "ruleIndex": rule,
        "level": one.diagnostic.severity.value,  # SARIF's levels have the names of ours
        "message": {"text": one.text},
        "locations": [_location(one.span)],
        "partialFingerprints": {"smdpLaunch/v1": one.fingerprint},
    }
    if one.diagnostic.also:
        result["relatedLocations"] = [
            _location(span) | {"id": number, "message": {"text": "also here"}}
            for number, span in enumerate(one.diagnostic.also, 1)
        ]
    if one.diagnostic.edits:
        result["fixes"] = [_fix(one.diagnostic)]
    return result


def _location(span: Span) -> dict[str, object]:
    region = {"startLine": span.line, "startColumn": span.column, "endColumn": max(span.column, span.end_column)}
    return {"physicalLocation": {"artifactLocation": _artifact(span.file), "region": region}}


def _artifact(file: str) -> dict[str, str]:
    path = relative(file)
    return {"uri": f"file://{quote(path)}"} if path.startswith("/") else {"uri": quote(path)}


def _fix(one: Diagnostic) -> dict[str, object]:
    by_file = groupby(sorted(one.edits, key=lambda edit: edit.file), key=lambda edit: edit.file)
    changes = [
        {"artifactLocation": _artifact(file), "replacements": [_replacement(edit) for edit in edits]}
        for file, edits in by_file
    ]
    return {"description": {"text": one.help or one.message}, "artifactChanges": changes}


def _replacement(edit: Edit) -> dict[str, object]:
    region = {
        "startLine": edit.line,
        "startColumn": edit.column,
        "endLine": edit.end_line,
        "endColumn": edit.end_column,
    }
    return {"deletedRegion": region, "insertedContent": {"text": edit.text}}
