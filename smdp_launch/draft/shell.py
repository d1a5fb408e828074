"""An entry point that is a shell script, and the channels that files with settings name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from smdp_launch.source.scan import SourceFile, SourceTree

#: Limits of the search for channels: files, and bytes of each.
_MAX_FILES = 200
_MAX_SIZE = 64 << 10
_SETTINGS = (".yaml", ".yml", ".toml", ".json", ".ini", ".cfg")

_COMMENT = re.compile(r"(^|\s)#.*", re.MULTILINE)
_CONTINUED = re.compile(r"\\\n")
_CHANNEL = re.compile(r"\bSM_CHANNEL_([A-Z0-9_]+)")
#: A command that starts Python, with options of the interpreter that take no value.
_PYTHON = re.compile(r"\bpython3?\s+(?:-[uOBEIs]+\s+)*(?:-m\s+(?P<module>[\w.]+)|(?P<file>[\w./-]+\.py))(?P<rest>.*)")
_OPTION = re.compile(r"\s--([\w-]+)")
_ALL_ARGUMENTS = re.compile(r"\$(@|\*|\{@\}|\{\*\})")


class Started(NamedTuple):
    """The Python file of the source folder that a shell script starts.

    Args:
        gets_arguments: the script passes its own arguments on.
        options: those that the script sets itself, without dashes.
    """

    name: str
    gets_arguments: bool
    options: frozenset[str]


def is_shell(file: SourceFile) -> bool:
    return file.path.suffix in (".sh", ".bash")


def started_by(file: SourceFile, tree: SourceTree) -> Started | None:
    """The only Python file of ``tree`` that the shell script ``file`` starts; None if this is not clear."""
    found = {_file(one, tree): one for one in _PYTHON.finditer(_CONTINUED.sub(" ", _text(file.path)))}
    ours = [(name, one) for name, one in found.items() if name is not None]
    if len(ours) != 1:
        return None
    name, command = ours[0]
    rest = command["rest"]
    return Started(name, _ALL_ARGUMENTS.search(rest) is not None, frozenset(_OPTION.findall(rest)))


def _file(command: re.Match[str], tree: SourceTree) -> str | None:
    """The file of the command: the only one whose path ends as the command has it, because the working folder and
    Python's path are not known."""
    module = (command["module"] or "").replace(".", "/")
    ends = (f"{module}.py", f"{module}/__main__.py") if module else (re.sub(r"^(\.*/)+", "", command["file"]),)
    names = [one.name for one in tree.files if f"/{one.name}".endswith(tuple(f"/{end}" for end in ends))]
    return names[0] if len(names) == 1 else None


def channels_of_settings(tree: SourceTree, entry: str) -> list[str]:
    """The channels whose variables the shell script ``entry`` or files with settings name."""
    settings = [one for one in tree.files if one.path.suffix in _SETTINGS and one.size <= _MAX_SIZE][:_MAX_FILES]
    files = [*(one for one in tree.files if one.name == entry and is_shell(one)), *settings]
    return list(dict.fromkeys(_channels(one.path for one in files)))


def _channels(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        yield from (one[1].lower() for one in _CHANNEL.finditer(_text(path)))


def _text(path: Path) -> str:
    """The text without comments; empty if the file cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return _COMMENT.sub("", file.read(_MAX_SIZE))
    except OSError:
        return ""
