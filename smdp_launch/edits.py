"""Edits applied to text. Pure; who chooses the edits, and where the text comes from, is no matter of this module."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping, Sequence

from smdp_launch.diagnostics import Diagnostic, Edit

#: What ends a line, for YAML 1.2 as for editors.
_LINE_END = re.compile(r"\r\n|\r|\n")
# Blanks, commas and comments, with nothing else. Entries with no more than this between them are neighbours.
_NOTHING = re.compile(r"(?:[\s,]|#[^\r\n]*)*")

#: Start, end and new text; offsets in characters.
Change = tuple[int, int, str]


class Lines:
    """Offsets of a text to lines and columns, both from 1, and back."""

    def __init__(self, text: str) -> None:
        self._starts = [0, *(one.end() for one in _LINE_END.finditer(text))]
        self._length = len(text)

    def position(self, offset: int) -> tuple[int, int]:
        line = bisect.bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """Raises:
        ValueError: the text has no such place.
        """
        if not 1 <= line <= len(self._starts) or column < 1:
            raise ValueError(f"no line {line}, column {column}")
        found = self._starts[line - 1] + column - 1
        if found > (self._starts[line] if line < len(self._starts) else self._length):
            raise ValueError(f"no column {column} in line {line}")
        return found


def split_lines(text: str) -> list[str]:
    """The lines without their ends."""
    return _LINE_END.split(text)


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with all ``edits``, each of which is a place in ``text`` as it was given.

    Raises:
        ValueError: two of them overlap, or one is outside the text.
    """
    lines = Lines(text)
    made, end = [], 0
    for start, stop, new in sorted(_change(lines, one) for one in edits):
        if start < end or stop < start:
            raise ValueError("edits overlap")
        made += [text[end:start], new]
        end = stop
    return "".join([*made, text[end:]])


#: Diagnostics whose edits are applied together: each is held against all others.
_MOST = 500


def without_conflicts(found: Iterable[Diagnostic], texts: Mapping[str, str]) -> list[Diagnostic]:
    """The diagnostics whose edits can be applied together; of two that conflict, the first.

    Two removals with nothing between them conflict as well: each may count on the other entry to stay.

    Args:
        texts: of the files that may be edited; a diagnostic with an edit of another file is left out.
    """
    lines = {name: Lines(text) for name, text in texts.items()}
    taken: dict[str, list[Change]] = {name: [] for name in texts}
    chosen: list[Diagnostic] = []
    for one in found:
        if len(chosen) == _MOST:
            break
        if not one.edits or any(edit.file not in texts for edit in one.edits):
            continue
        changes = [(edit.file, _change(lines[edit.file], edit)) for edit in one.edits]
        if any(_conflict(texts[name], change, taken[name]) for name, change in changes):
            continue
        for name, change in changes:
            taken[name].append(change)
        chosen.append(one)
    return chosen


def _change(lines: Lines, edit: Edit) -> Change:
    return lines.offset(edit.line, edit.column), lines.offset(edit.end_line, edit.end_column), edit.text


def _conflict(text: str, change: Change, taken: Sequence[Change]) -> bool:
    return any(_collide(text, *sorted((change, other))) for other in taken)


def _collide(text: str, first: Change, second: Change) -> bool:
    if second[0] < first[1] or first[0] == second[0]:
        return True
    both_remove = not first[2] and not second[2]
    return both_remove and _NOTHING.fullmatch(text, first[1], second[0]) is not None
