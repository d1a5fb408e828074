"""Edits of job files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smdp_launch.diagnostics import Diagnostic, Edit
from smdp_launch.edits import apply_edits
from smdp_launch.jobfile.yaml.document import Document
from smdp_launch.jobfile.yaml.parser import parse


def named(found: Sequence[Diagnostic]) -> list[tuple[str, str]]:
    return [(one.code, one.message) for one in found]


Location = tuple[str | int, ...]


def document_of(text: str) -> Document:
    document, problems = parse(text, Document("job.yaml", Path()))
    assert problems == []
    return document


def edited(text: str, edits: tuple[Edit, ...]) -> str | None:
    return apply_edits(text, edits) if edits else None
