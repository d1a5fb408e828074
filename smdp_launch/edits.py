"""Apply edits to text. Pure functions: the caller selects the edits and reads and writes the files."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping, Sequence

from smdp_launch.diagnostics import Diagnostic, Edit

#: Line ends of YAML 1.2 and of editors.
_LINE_END = re.compile(r"\r\n|\r|\n")
# Spaces, commas and comments only. Entries with only this between them are neighbours.
_SEPARATOR = re.compile(r"(?:[\s,]|#[^\r\n]*)*")

#: Start, end and new text; offsets in characters.
Change = tuple[int, int, str]


class Lines:
    """Converts the offsets of a text to lines and columns, both from 1, and back."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(one.end() for one in _LINE_END.finditer(text))]
        self._length = len(text)

    def position(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """The offset of a place.

        Raises:
            ValueError: the text has no such place.
        """
        if not 1 <= line <= len(self._starts) or column < 1:
            raise ValueError(f"no line {line}, column {column}")
        offset = self._starts[line - 1] + column - 1
        if offset > (self._starts[line] if line < len(self._starts) else self._length):
            raise ValueError(f"no column {column} in line {line}")
        return offset


def split_lines(text: str) -> list[str]:
    """The lines without their ends."""
    return _LINE_END.split(text)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with all ``edits``, whose places are those of ``text`` before any edit.

    Raises:
        ValueError: two edits overlap, or one is outside the text.
    """
    lines = Lines(text)
    parts: list[str] = []
    end = 0
    for start, stop, new in sorted(_change(lines, one) for one in edits):
        if start < end or stop < start:
            raise ValueError("edits overlap")
        parts += [text[end:start], new]
        end = stop
    return "".join([*parts, text[end:]])


#: Diagnostics whose edits are applied together: each edit is compared with all others.
_MAX_TOGETHER = 500


def without_conflicts(diagnostics: Iterable[Diagnostic], texts: Mapping[str, str]) -> list[Diagnostic]:
    """The diagnostics whose edits can be applied together. Of two that conflict, only the first.

    Two removals of neighbours conflict too: each is correct only if the other entry stays.

    Args:
        texts: the texts of the files that may be edited. A diagnostic with an edit of another file is left out.
    """
    lines = {name: Lines(text) for name, text in texts.items()}
    accepted: dict[str, list[Change]] = {name: [] for name in texts}
    compatible: list[Diagnostic] = []
    for one in diagnostics:
        if len(compatible) == _MAX_TOGETHER:
            break
        if not one.edits or any(edit.file not in texts for edit in one.edits):
            continue
        changes = [(edit.file, _change(lines[edit.file], edit)) for edit in one.edits]
        if any(_conflict(texts[name], change, accepted[name]) for name, change in changes):
            continue
        for name, change in changes:
            accepted[name].append(change)
        compatible.append(one)
    return compatible


def _change(lines: Lines, edit: Edit) -> Change:
    return lines.offset(edit.line, edit.column), lines.offset(edit.end_line, edit.end_column), edit.text


def _conflict(text: str, change: Change, others: Sequence[Change]) -> bool:
    return any(_collide(text, *sorted((change, other))) for other in others)


def _collide(text: str, first: Change, second: Change) -> bool:
    if second[0] < first[1] or first[0] == second[0]:
        return True
    both_remove = not first[2] and not second[2]
    return both_remove and _SEPARATOR.fullmatch(text, first[1], second[0]) is not None
