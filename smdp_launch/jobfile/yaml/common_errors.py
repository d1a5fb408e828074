"""Common errors in YAML that the parser reports at the wrong place, or reads as something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from smdp_launch.diagnostics import Diagnostic, Edit, Span

#: Returns the line, from 0, at which a text stops being valid YAML; None if all of it is valid.
FailsAt = Callable[[str], int | None]
#: Returns a line, which may have its end, without one error; None if it does not have that error.
Repair = Callable[[str], str | None]

# Git's conflict markers at the start of a line. The middle marker is a whole line.
_MARKER = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |$)|={7}$")
# A key, a colon and text directly after it. With `//` after the colon it is a URI.
_NO_SPACE = re.compile(r"""(?P<key>"[^"]+"|'[^']+'|[A-Za-z_][\w.-]*):(?!//)(?=[^\s:])""")
START = re.compile(r" *(?:- +)*")

# The search for a cause covers this many lines before a failure.
NEAR = 10
# The search for causes parses at most this many characters. Each parse takes as long as the first.
MOST_PARSED = 60_000


def key_without_space(text: str) -> str | None:
    """The key at the start of ``text``, if a colon without a space follows it."""
    match = _NO_SPACE.match(text)
    return match["key"] if match is not None else None


def missing_space(key: str, span: Span, text: str, *, editable: bool = True) -> Diagnostic:
    """The diagnostic for a missing space after the colon of ``key``, which is at the start of ``span``."""
    column = span.column + len(key) + 1
    edit = Edit(span.file, span.line, column, span.line, column, " ")
    message = f"there is no space after `{key}:`, so YAML reads the key and its value as one text"
    help_ = "put a space after the colon" if editable else "put a space after the colon of each key"
    return Diagnostic("SMDP108", message, span, text, help_, edits=(edit,) if editable else ())


def find(file: str, text: str, failure: int, fails_at: FailsAt) -> list[Diagnostic]:
    """The common errors that make ``text`` invalid YAML at line ``failure``, from 0; empty if the error is another."""
    return merge_conflict(file, text) or list(_missing_spaces(file, text, failure, fails_at))


def merge_conflict(file: str, text: str) -> list[Diagnostic]:
    """The conflict markers of git, as one diagnostic."""
    lines = text.splitlines()
    markers = [index for index, line in enumerate(lines) if _MARKER.match(line)]
    if not markers:
        return []
    first, *others = (Span(file, index + 1, 1, len(lines[index]) + 1, lines[index]) for index in markers)
    message = "the file contains a merge conflict from git, which this line marks"
    help_ = "keep one of the two sides, and delete the lines that start with <<<<<<<, =======, ||||||| and >>>>>>>"
    return [Diagnostic("SMDP109", message, first, first.source, help_, also=tuple(others))]


def lines_without_space(file: str, text: str) -> list[Diagnostic]:
    """For a text without any mapping: each line that would be a key and a value with a space between them."""
    lines = text.splitlines()
    return [one for index in range(len(lines)) if (one := _in_line(file, lines, index)) is not None]


def _missing_spaces(file: str, text: str, failure: int, fails_at: FailsAt) -> Iterator[Diagnostic]:
    lines = text.splitlines()
    for index in lines_to_repair(text, failure, fails_at, _with_space):
        one = _in_line(file, lines, index)
        if one is not None:
            yield one


def lines_to_repair(text: str, failure: int, fails_at: FailsAt, repair: Repair) -> Iterator[int]:
    """The lines, from 0, at which the parser fails first, then those at which it fails with these repaired, and so on.

    A repair is correct if the parser then reads more lines."""
    fixed = text.splitlines(keepends=True)
    attempts, past_end = count(1), len(fixed) + 1  # at the line after the last one, the parser can fail

    def next_failure(indices: Sequence[int]) -> int | None:
        """The failing line with ``indices`` fixed, if it is after ``failure``; past the end if none fails."""
        if next(attempts) * len(text) > MOST_PARSED:
            return None
        after = fails_at("".join(repair(line) or line if at in indices else line for at, line in enumerate(fixed)))
        return past_end if after is None else after if after > failure else None

    while True:
        last = min(failure, len(fixed) - 1)
        near = [index for index in range(last, max(-1, last - NEAR), -1) if repair(fixed[index]) is not None]
        causes = _causes(near, next_failure)
        if causes is None:
            return
        indices, failure = causes
        for index in indices:
            fixed[index] = repair(fixed[index]) or fixed[index]
        yield from indices
        if failure >= past_end:
            return


def _causes(near: Sequence[int], next_failure: Callable[[Sequence[int]], int | None]) -> tuple[list[int], int] | None:
    """The fewest of the lines ``near`` whose repair lets the parser read more lines, and the next failing line."""
    for amount in range(1, len(near) + 1):
        fixed, after = list(near[:amount]), next_failure(near[:amount])
        if after is None:
            continue
        for index in near[: amount - 1]:
            without = [one for one in fixed if one != index]
            fewer = next_failure(without)
            if fewer is not None:
                fixed, after = without, fewer
        return sorted(fixed), after
    return None


def _key_at(line: str) -> re.Match[str] | None:
    start = START.match(line)
    return _NO_SPACE.match(line, start.end() if start is not None else 0)


def _with_space(line: str) -> str | None:
    match = _key_at(line)
    return f"{line[: match.end()]} {line[match.end() :]}" if match is not None else None


def _in_line(file: str, lines: Sequence[str], index: int) -> Diagnostic | None:
    line = lines[index]
    match = _key_at(line)
    if match is None:
        return None
    span = Span(file, index + 1, match.start() + 1, len(line.rstrip()) + 1, line)
    return missing_space(match["key"], span, line.strip())
