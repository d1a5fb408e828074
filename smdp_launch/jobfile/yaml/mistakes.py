"""Mistakes in YAML that a parser reports at another place, or takes for something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from smdp_launch.diagnostics import Diagnostic, Edit, Span

#: Says in which line, from 0, a text is no YAML; None if it is YAML.
FailsAt = Callable[[str], int | None]

# What git writes at the start of a line; the one in the middle stands alone.
_MARKER = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |$)|={7}$")
# A key and a colon with something right behind it. `//` there is a URI's.
_NO_BLANK = re.compile(r"""(?P<key>"[^"]+"|'[^']+'|[A-Za-z_][\w.-]*):(?!//)(?=[^\s:])""")
_START = re.compile(r" *(?:- +)*")

# Lines before a failure in which its cause is looked for.
_NEAR = 10
# Characters that are parsed in search of causes: one more parse takes as long as the first.
_MOST_PARSED = 60_000


def no_blank(text: str) -> str | None:
    """The key that ``text`` begins with, if a colon and no blank is behind it."""
    found = _NO_BLANK.match(text)
    return found["key"] if found is not None else None


def missing_blank(key: str, span: Span, text: str, *, editable: bool = True) -> Diagnostic:
    """No blank behind the colon of ``key``, with which ``span`` begins."""
    column = span.column + len(key) + 1
    edit = Edit(span.file, span.line, column, span.line, column, " ")
    message = f"there is no blank after `{key}:`, so YAML reads the key and its value as one text"
    help_ = "put a blank after the colon" if editable else "put a blank after the colon of each key"
    return Diagnostic("SMDP108", message, span, text, help_, edits=(edit,) if editable else ())


def named(file: str, text: str, failure: int, fails_at: FailsAt) -> list[Diagnostic]:
    """The mistakes for which ``text`` is no YAML from line ``failure`` on, from 0; empty if it is none of those known
    here."""
    return merge_conflict(file, text) or list(_missing_blanks(file, text, failure, fails_at))


def merge_conflict(file: str, text: str) -> list[Diagnostic]:
    """The lines that git writes around the two sides of a conflict, as one diagnostic."""
    lines = text.splitlines()
    found = [index for index, line in enumerate(lines) if _MARKER.match(line)]
    if not found:
        return []
    first, *others = (Span(file, index + 1, 1, len(lines[index]) + 1, lines[index]) for index in found)
    message = "git left a merge conflict in the file, and this line marks it"
    help_ = "keep one of the two sides, and delete the lines that begin with <<<<<<<, =======, ||||||| and >>>>>>>"
    return [Diagnostic("SMDP109", message, first, first.source, help_, also=tuple(others))]


def lines_without_blank(file: str, text: str) -> list[Diagnostic]:
    """For a text that is no mapping at all: each line that would be a key and a value with a blank between them."""
    lines = text.splitlines()
    return [one for index in range(len(lines)) if (one := _in_line(file, lines, index)) is not None]


def _missing_blanks(file: str, text: str, failure: int, fails_at: FailsAt) -> Iterator[Diagnostic]:
    """Those with which the text fails first, as it would with the earlier ones fixed, and so on: a fix is right if the
    parser then comes further."""
    lines, fixed = text.splitlines(), text.splitlines(keepends=True)
    attempts = count(1)

    def moves_on(indices: Sequence[int]) -> int | None:
        """Where the text fails with these lines fixed, if behind ``failure``; its number of lines if nowhere."""
        if next(attempts) * len(text) > _MOST_PARSED:
            return None
        after = fails_at("".join(_with_blank(line) if at in indices else line for at, line in enumerate(fixed)))
        return len(lines) if after is None else after if after > failure else None

    while (causes := _causes(lines, failure, moves_on)) is not None:
        indices, failure = causes
        for index in indices:
            fixed[index] = _with_blank(fixed[index])
            one = _in_line(file, lines, index)
            if one is not None:
                yield one
        if failure >= len(lines):
            return


def _causes(
    lines: Sequence[str], failure: int, moves_on: Callable[[Sequence[int]], int | None]
) -> tuple[list[int], int] | None:
    """The fewest lines near ``failure`` with whose fix the parser comes further, and how far it then comes."""
    last = min(failure, len(lines) - 1)
    near = [index for index in range(last, max(-1, last - _NEAR), -1) if _key_at(lines[index]) is not None]
    for amount in range(1, len(near) + 1):
        chosen, after = near[:amount], moves_on(near[:amount])
        if after is None:
            continue
        for index in near[: amount - 1]:
            without = [one for one in chosen if one != index]
            fewer = moves_on(without)
            if fewer is not None:
                chosen, after = without, fewer
        return sorted(chosen), after
    return None


def _key_at(line: str) -> re.Match[str] | None:
    start = _START.match(line)
    return _NO_BLANK.match(line, start.end() if start is not None else 0)


def _with_blank(line: str) -> str:
    found = _key_at(line)
    return f"{line[: found.end()]} {line[found.end() :]}" if found is not None else line


def _in_line(file: str, lines: Sequence[str], index: int) -> Diagnostic | None:
    line = lines[index]
    found = _key_at(line)
    if found is None:
        return None
    span = Span(file, index + 1, found.start() + 1, len(line.rstrip()) + 1, line)
    return missing_blank(found["key"], span, line.strip())
