"""The version of the three distributions. It stands in pyproject.toml; the other places repeat it.

Usage: version.py          print it, or every place that differs
       version.py VERSION  write it in every place
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_NUMBER = r"(\d+\.\d+\.\d+[\w.+]*)"


class Place(NamedTuple):
    """A line of a file; the pattern's only group is the version."""

    file: str
    pattern: str


SOURCE = Place("pyproject.toml", rf'^version = "{_NUMBER}"$')
REPEATS = (
    Place("pyproject.toml", rf'"smdp-entrypoint=={_NUMBER}"'),
    Place("smdp_launch/__init__.py", rf'^__version__ = "{_NUMBER}"$'),
    Place("containers/entrypoint/pyproject.toml", rf'^version = "{_NUMBER}"$'),
    Place("containers/entrypoint/smdp_entrypoint/__init__.py", rf'^__version__ = "{_NUMBER}"$'),
    Place("native/pyproject.toml", rf'^version = "{_NUMBER}"$'),
    Place("native/CMakeLists.txt", rf"^project\(smdp_engine VERSION {_NUMBER} "),
    Place("containers/pytorch/Dockerfile", rf"^ARG ENGINE={_NUMBER}$"),
    Place("containers/pytorch/Dockerfile.dlc", rf"^ARG ENGINE={_NUMBER}$"),
    Place("containers/tensorflow/Dockerfile", rf"^ARG ENGINE={_NUMBER}$"),
)


def version(root: Path = ROOT) -> str:
    return _found(root, SOURCE)


def differing(root: Path = ROOT) -> list[str]:
    """The places that do not repeat the version, each with what stands there."""
    wanted = version(root)
    found = [(place.file, _found(root, place)) for place in REPEATS]
    return [f"{file} has {other}, pyproject.toml has {wanted}" for file, other in found if other != wanted]


def write(new: str, root: Path = ROOT) -> None:
    if re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", new) is None:
        sys.exit(f"{new!r} is not a version such as 0.2.0 or 0.2.0rc1")
    for place in (SOURCE, *REPEATS):
        match = _match(root, place)
        text = match.string[: match.start(1)] + new + match.string[match.end(1) :]
        (root / place.file).write_text(text, encoding="utf-8")


def _match(root: Path, place: Place) -> "re.Match[str]":
    match = re.search(place.pattern, (root / place.file).read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        sys.exit(f"{place.file}: no version where {place.pattern!r} looks for it")
    return match


def _found(root: Path, place: Place) -> str:
    return _match(root, place)[1]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1])
    problems = differing()
    print("\n".join(problems) or version())
    sys.exit(bool(problems))
