"""requirements.txt as plain values: the packages and versions that pip installs on every host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

REQUIREMENTS_FILE = "requirements.txt"

#: Bytes.
MAX_REQUIREMENTS = 1 << 20

_RELEASE = re.compile(r"\d+(\.\d+){0,5}(\.\*)?")


class Requirement(NamedTuple):
    """One package.

    Args:
        name: as the package index compares names: lower case, with hyphens.
        clauses: such as ``(">=", "2.0")``, sorted; empty for any version and for a URL.
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

    def allows(self, *versions: str) -> bool:
        """Whether the clauses allow one of ``versions``.

        Local parts such as ``+cu118`` are ignored, and so are clauses with other versions than releases.
        """
        from packaging.specifiers import SpecifierSet

        clauses = [(operator, version.partition("+")[0]) for operator, version in self.clauses]
        compared = ",".join(operator + version for operator, version in clauses if _RELEASE.fullmatch(version))
        return any(True for _ in SpecifierSet(compared).filter(versions, prereleases=True))


class RequirementProblem(NamedTuple):
    """A line that pip refuses. Its text is omitted, because it may contain a password."""

    line: int
    reason: str


class LocalPath(NamedTuple):
    """A relative path that a line names: a file with more requirements, or a package."""

    path: str
    line: int
    text: str


class Requirements(NamedTuple):
    """The contents of a requirements file.

    Args:
        includes: files named by ``-r`` and ``-c``, with the line; they are not read.
        paths: the local files and folders that it names, ``includes`` among them.
    """

    exists: bool = False
    packages: tuple[Requirement, ...] = ()
    includes: tuple[tuple[str, int], ...] = ()
    problems: tuple[RequirementProblem, ...] = ()
    paths: tuple[LocalPath, ...] = ()

    def package(self, *names: str) -> Requirement | None:
        """The first requirement that has one of these names."""
        return next((one for one in self.packages if one.name in names), None)


def read_requirements(path: Path) -> Requirements:
    """The requirements file at ``path``. If it cannot be read, the reason is in ``problems``."""
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
    paths: list[LocalPath] = []
    for number, line in _logical_lines(text):
        named = _path(line)
        if named is not None:
            paths.append(LocalPath(named, number, line))
        included = re.fullmatch(r"(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)", line)
        if included:
            includes.append((included[1], number))
        elif line.startswith("-") or _is_location(line):
            continue
        elif (requirement := _requirement(line, number)) is not None:
            packages.append(requirement)
        else:
            problems.append(RequirementProblem(number, "not a name with versions, such as numpy>=1.24"))
    return Requirements(True, tuple(packages), tuple(includes), tuple(problems), tuple(paths))


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """The lines without comments, each with its number. Lines that end in a backslash are joined with the next."""
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
    return re.match(r"[a-z+]+:/|\.(\[|$)|[\w.-]*/", line) is not None or (
        "@" not in line and line.endswith((".whl", ".tar.gz", ".zip"))
    )


def _path(line: str) -> str | None:
    """The relative path of a local file or folder that the line names; None if it names none."""
    option = re.match(r"(?:-r|-c|-e|--requirement|--constraint|--editable)[\s=]*", line)
    if option is None and not _is_location(line):
        return None
    # Behind the path, there may be extras, a fragment, a marker or options.
    path = re.split(r"[\s\[#;]", line[option.end() if option else 0 :], maxsplit=1)[0].strip("\"'")
    return path if path and not re.match(r"/|[a-z+]+:|.*[@$\\]", path) else None


def _requirement(text: str, line: int) -> Requirement | None:
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Parsed
    from packaging.utils import canonicalize_name

    try:
        parsed = Parsed(re.sub(r"\s--[a-z-]+[= ].*", "", text))
    except (InvalidRequirement, RecursionError):
        return None
    clauses = sorted((one.operator, one.version) for one in parsed.specifier)
    return Requirement(canonicalize_name(parsed.name), line, tuple(clauses), "" if parsed.url else text)
