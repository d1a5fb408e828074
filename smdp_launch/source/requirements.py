"""requirements.txt as plain values: which packages the script wants on every host, and which versions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

REQUIREMENTS_FILE = "requirements.txt"

#: Bytes.
MAX_REQUIREMENTS = 1 << 20

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_CLAUSE = r"\s*(===|==|~=|!=|<=|>=|<|>)\s*([A-Za-z0-9._*+!-]+)\s*"
_LINE = re.compile(
    rf"(?P<name>{_NAME})\s*(\[[^\]]*\])?\s*"
    rf"(@\s*(?P<url>\S+)|\(?(?P<clauses>({_CLAUSE})(,{_CLAUSE})*)?\)?)\s*(;.*)?"
)


class Requirement(NamedTuple):
    """One package.

    Args:
        name: as the package index compares names: lower case, with hyphens.
        clauses: such as ``(">=", "2.0")``; empty for any version and for a URL.
        text: the line, for an excerpt; empty for a URL, which may hold a password.
    """

    name: str
    line: int
    clauses: tuple[tuple[str, str], ...] = ()
    text: str = ""

    @property
    def pin(self) -> str | None:
        """The one version it takes, without a local part such as ``+cu118``; ``2.0`` for ``==2.0.*``."""
        exact = [version for operator, version in self.clauses if operator in ("==", "===")]
        return exact[0].partition("+")[0].removesuffix(".*") if len(exact) == 1 else None


class RequirementProblem(NamedTuple):
    """A line that pip would refuse. Its text is not kept: it may hold a password."""

    line: int
    reason: str


class Requirements(NamedTuple):
    """What a requirements file asks for.

    Args:
        includes: files named by ``-r`` and ``-c``, with the line; they are not read.
    """

    exists: bool = False
    packages: tuple[Requirement, ...] = ()
    includes: tuple[tuple[str, int], ...] = ()
    problems: tuple[RequirementProblem, ...] = ()

    def package(self, *names: str) -> Requirement | None:
        """The first requirement that has one of these names."""
        return next((one for one in self.packages if one.name in names), None)


def read_requirements(path: Path) -> Requirements:
    """The requirements file at ``path``; what keeps it from being read is a problem."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_REQUIREMENTS + 1)
    except FileNotFoundError:
        return Requirements()
    except OSError as error:
        return Requirements(True, problems=(RequirementProblem(0, f"it cannot be read: {error.strerror}"),))
    if len(raw) > MAX_REQUIREMENTS:
        return Requirements(True, problems=(RequirementProblem(0, f"it has more than {MAX_REQUIREMENTS} bytes"),))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Requirements(True, problems=(RequirementProblem(line, "it is not UTF-8"),))
    return parse_requirements(text)


def parse_requirements(text: str) -> Requirements:
    packages: list[Requirement] = []
    includes: list[tuple[str, int]] = []
    problems: list[RequirementProblem] = []
    for number, line in _logical_lines(text):
        included = re.fullmatch(r"(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)", line)
        if included:
            includes.append((included[1], number))
        elif line.startswith("-") or _is_location(line):
            continue
        elif match := _LINE.fullmatch(" ".join(re.sub(r"\s--[a-z-]+[= ].*", "", line).split())):
            packages.append(_requirement(match, number, "" if match["url"] else line))
        else:
            problems.append(RequirementProblem(number, "not a name with versions, such as numpy>=1.24"))
    return Requirements(True, tuple(packages), tuple(includes), tuple(problems))


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines without comments, those that end in a backslash joined, with the number of their first."""
    lines: list[tuple[int, str]] = []
    started: tuple[int, str] | None = None
    for number, written in enumerate(text.splitlines(), 1):
        first, before = started or (number, "")
        line = before + re.sub(r"(^|\s)#.*", "", written)
        started = (first, line[:-1]) if line.endswith("\\") else None
        if started is None and line.strip():
            lines.append((first, line.strip()))
    return [*lines, (started[0], started[1].strip())] if started and started[1].strip() else lines


def _is_location(line: str) -> bool:
    """A URL or a path in place of a name."""
    return re.match(r"[a-z+]+://|\.{0,2}/", line) is not None or (
        "@" not in line and line.endswith((".whl", ".tar.gz", ".zip"))
    )


def _requirement(match: re.Match[str], line: int, text: str) -> Requirement:
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return Requirement(name, line, tuple(re.findall(_CLAUSE, match["clauses"] or "")), text)
