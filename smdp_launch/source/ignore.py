"""The ignore file, ``.smdpignore``: patterns as in gitignore(5) for what is not uploaded."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

IGNORE_FILE = ".smdpignore"

#: Bytes. Every pattern is matched with every file, so a longer file would be slow.
MAX_IGNORE_FILE = 64 << 10

# The time to match a name grows exponentially with the number of wildcards.
_MAX_WILDCARDS = 6


class IgnoreProblem(NamedTuple):
    """A line of the ignore file that is not a valid pattern. ``line`` counts from 1; 0 is the whole file."""

    line: int
    text: str
    reason: str


class IgnoreRules(NamedTuple):
    """The patterns of an ignore file, each with whether it excludes, and the lines that are not patterns."""

    patterns: tuple[tuple[re.Pattern[str], bool], ...] = ()
    problems: tuple[IgnoreProblem, ...] = ()

    def excludes(self, name: str, is_folder: bool) -> bool:
        """Whether the last pattern that matches the entry itself excludes it.

        Call it for parents first: everything below an excluded folder is excluded, and no pattern can include it again.
        """
        path = f"{name}/" if is_folder else name
        return next((exclude for regex, exclude in reversed(self.patterns) if regex.fullmatch(path)), False)


class Ignored(NamedTuple):
    """What the ignore file excludes.

    Args:
        files: their number.
        size: bytes. If not ``complete``, both are lower bounds.
        names: the first hundred excluded entries, without entries below an excluded folder. Folders end with a slash.
    """

    files: int = 0
    size: int = 0
    names: tuple[str, ...] = ()
    complete: bool = True

    def includes(self, name: str) -> bool:
        """Whether the file is among the excluded entries."""
        return any(name == one or (one.endswith("/") and name.startswith(one)) for one in self.names)


def read_ignore_file(folder: Path) -> IgnoreRules:
    """The rules in the folder's ``.smdpignore``; empty if there is no such file."""
    try:
        with (folder / IGNORE_FILE).open("rb") as file:
            raw = file.read(MAX_IGNORE_FILE + 1)
    except FileNotFoundError:
        return IgnoreRules()
    except OSError as error:
        return IgnoreRules(problems=(IgnoreProblem(0, "", f"it cannot be read: {error.strerror}"),))
    if len(raw) > MAX_IGNORE_FILE:
        return IgnoreRules(problems=(IgnoreProblem(0, "", f"it has more than {MAX_IGNORE_FILE} bytes"),))
    return parse_ignore(raw.decode("utf-8-sig", errors="surrogateescape"))


def parse_ignore(text: str) -> IgnoreRules:
    parsed = _Parsed()
    for number, line in enumerate(text.split("\n"), 1):
        parsed.add(number, line.removesuffix("\r"))
    return IgnoreRules(tuple(parsed.patterns), tuple(parsed.problems))


@dataclass
class _Parsed:
    patterns: list[tuple[re.Pattern[str], bool]] = field(default_factory=list)
    problems: list[IgnoreProblem] = field(default_factory=list)

    def add(self, number: int, line: str) -> None:
        text = _without_trailing_spaces(line)
        if not text or text.startswith("#"):
            return
        reason = _unsupported(text)
        pattern = None if reason else _compiled(text)
        if pattern is not None:
            self.patterns.append(pattern)
        else:
            shown = line.encode("utf-8", errors="replace").decode()[:200]
            self.problems.append(IgnoreProblem(number, shown, reason or "no file can match it"))


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    return f"{stripped} " if stripped != line and stripped.endswith("\\") else stripped


def _unsupported(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if "[[:" in text:
        return "named classes such as [[:digit:]] are not supported; write [0-9]"
    if len(re.findall(r"\*+", text.replace("**/", ""))) > _MAX_WILDCARDS:
        return f"it has more than {_MAX_WILDCARDS} wildcards"
    return None


def _compiled(text: str) -> tuple[re.Pattern[str], bool] | None:
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pattern = GitIgnoreSpecPattern(_matching_whole_names(text))
    except (ValueError, re.error):
        return None
    regex = pattern.regex
    return None if regex is None or pattern.include is None else (regex, pattern.include)


def _matching_whole_names(text: str) -> str:
    """The same pattern in a form whose expression matches an entry's whole name.

    The library converts ``*``, ``**`` and ``folder/**`` to expressions for a prefix, which do not distinguish a folder
    from its contents. Then ``folder/**`` would exclude the folder, and ``!folder/file`` could not include a file again.
    """
    inside = re.sub(r"(^!?|/)\*\*(/?)$", r"\1**/*\2", text)
    return re.sub(r"(^!?|/)\*(/?)$", r"\1?*\2", inside)
