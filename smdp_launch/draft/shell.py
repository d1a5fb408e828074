"""An entry point that is a shell script, and the channels that files with settings name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from smdp_launch.source.scan import SourceFile, SourceTree

#: Limits of the search for channels: files, and bytes of each.
_MAX_FILES = 200
_MAX_SIZE = 64 << 10
_LONGEST_SHEBANG = 256
_SETTINGS = (".yaml", ".yml", ".toml", ".json", ".ini", ".cfg")

_COMMENT = re.compile(r"(^|\s)#.*", re.MULTILINE)
_CONTINUED = re.compile(r"\\\n")
_CHANNEL = re.compile(r"\bSM_CHANNEL_([A-Z0-9_]+)")
#: What separates two commands, and what may stand before a path of the source folder.
_COMMANDS = re.compile(r"\n|;|&&|\|\|?|&")
_FOLDERS = re.compile(r"^(/opt/ml/code/|\$\{?\w+\}?/|\S*\)/|\.+/)+")
_PYTHON = re.compile(r"(\S*/)?python[\d.]*$")
#: Commands that start workers, each with the command of Python's launchers.
_LAUNCHERS = {"torchrun": "torchrun", "deepspeed": "deepspeed", "accelerate": "accelerate launch"}
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed")
_SHELL_SUFFIXES = (".sh", ".bash")
_SHEBANG = re.compile(rb"#!\s*\S*?(/env\s+)?(ba|da|k|z)?sh\b")
_OPTION = re.compile(r"--([\w-]+)")
_ALL_ARGUMENTS = re.compile(r"\$(@|\*|\{@\}|\{\*\})")


class Started(NamedTuple):
    """The Python file of the source folder that a shell script starts.

    Args:
        launcher: the command that starts several workers with it, such as ``torchrun``.
        gets_arguments: the script passes its own arguments on.
        options: those that the script sets itself, without dashes.
    """

    name: str
    launcher: str | None
    gets_arguments: bool
    options: frozenset[str]


class _Command(NamedTuple):
    """A command that starts Python: ``target`` is its file or module."""

    launcher: str | None
    target: str
    is_module: bool
    rest: tuple[str, ...]


def is_shell(file: SourceFile) -> bool:
    if file.path.suffix:
        return file.path.suffix in _SHELL_SUFFIXES
    try:
        with file.path.open("rb") as opened:
            return _SHEBANG.match(opened.readline(_LONGEST_SHEBANG)) is not None
    except OSError:
        return False


def started_by(file: SourceFile, tree: SourceTree) -> Started | None:
    """The only Python file of ``tree`` that the shell script ``file`` starts; None if this is not clear."""
    found = {_file(one, tree): one for one in _commands(_CONTINUED.sub(" ", _text(file.path)))}
    ours = [(name, one) for name, one in found.items() if name is not None]
    if len(ours) != 1:
        return None
    name, command = ours[0]
    options = frozenset(match[1] for one in command.rest if (match := _OPTION.match(one)))
    return Started(name, command.launcher, any(map(_ALL_ARGUMENTS.search, command.rest)), options)


def _commands(text: str) -> Iterator[_Command]:
    for line in _COMMANDS.split(text):
        words = [one.strip("\"'") for one in line.split()]
        for index, word in enumerate(words):
            launcher = _LAUNCHERS.get(word.rpartition("/")[2])
            if launcher is not None or _PYTHON.match(word):
                command = _command(launcher, words[index + 1 :])
                if command is not None:
                    yield command
                break


def _command(launcher: str | None, words: Sequence[str]) -> _Command | None:
    """The command after ``python`` or a launcher: options come before the file or module."""
    for index, word in enumerate(words):
        following, after = words[index + 1] if index + 1 < len(words) else "", tuple(words[index + 2 :])
        if word in ("-m", "--module") and following:
            if following in _MODULES and launcher is None:
                return _command(following, after)
            return _Command(launcher, following, True, after)
        if word.endswith(".py"):
            return _Command(launcher, word, False, tuple(words[index + 1 :]))
        if word == "-c" and launcher is None:
            return None
    return None


def _file(command: _Command, tree: SourceTree) -> str | None:
    """The file of the command: the only one whose path ends as the command has it, because the working folder and
    Python's path are not known."""
    module = command.target.replace(".", "/") if command.is_module else ""
    ends = (f"{module}.py", f"{module}/__main__.py") if module else (_FOLDERS.sub("", command.target),)
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
