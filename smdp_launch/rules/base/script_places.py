"""Places in the files of the source folder, for diagnostics."""

from __future__ import annotations

from smdp_launch.diagnostics import Span
from smdp_launch.rules.base.facts import Facts
from smdp_launch.source.syntax.tree import Mark


def whole_line(facts: Facts, name: str, line: int) -> Mark:
    """The text of a line of the training script ``name``."""
    text = facts.scripts[name].lines[line - 1]
    return Mark(line, len(text) - len(text.lstrip()) + 1, len(text.rstrip()) + 1)


def place(facts: Facts, name: str, mark: Mark) -> Span:
    """``mark`` in the script ``name`` of the source folder, for training or for serving."""
    lines = (facts.scripts if name in facts.scripts else facts.serve_scripts)[name].lines
    source = lines[mark.line - 1] if mark.line <= len(lines) else ""
    file = str(facts.source.folder / name) if facts.source is not None else name
    return Span(file, mark.line, mark.column, mark.end_column, source)
