"""The formats of GitHub Actions and of GitLab that mark the lines of a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smdp_launch.checking.job import CheckedJob
from smdp_launch.cli.render.json_output import json_text
from smdp_launch.cli.render.review.places import Entry, entries, relative
from smdp_launch.diagnostics import Severity

_GITHUB = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_GITLAB = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.NOTE: "info"}
# https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions: what ends a command or a property.
_ESCAPES = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY_ESCAPES = _ESCAPES | {":": "%3A", ",": "%2C"}


def github(jobs: Sequence[CheckedJob]) -> str:
    """Workflow commands, one a line; empty without a diagnostic."""
    return "\n".join(map(_workflow_command, entries(jobs)))


def _workflow_command(one: Entry) -> str:
    properties = {
        "file": relative(one.span.file),
        "line": str(one.span.line),
        "col": str(one.span.column),
        "endColumn": str(max(one.span.column, one.span.end_column)),
        "title": f"smdp-launch {one.diagnostic.code}",
    }
    text = ",".join(f"{name}={_escaped(value, _PROPERTY_ESCAPES)}" for name, value in properties.items())
    return f"::{_GITHUB[one.diagnostic.severity]} {text}::{_escaped(one.text, _ESCAPES)}"


def _escaped(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(char, char) for char in text)


def gitlab(jobs: Sequence[CheckedJob]) -> str:
    """GitLab's Code Quality report (https://docs.gitlab.com/ci/testing/code_quality/): a JSON array."""
    return json_text([_issue(one) for one in entries(jobs)])


def _issue(one: Entry) -> dict[str, object]:
    return {
        "description": one.text,
        "check_name": one.diagnostic.code,
        "fingerprint": one.fingerprint,
        "severity": _GITLAB[one.diagnostic.severity],
        "location": {"path": relative(one.span.file), "lines": {"begin": one.span.line}},
    }
