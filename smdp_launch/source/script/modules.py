"""A script together with the modules of its source folder that it imports."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from smdp_launch.source.commandline.arguments import CommandLine, command_line
from smdp_launch.source.scan import SourceTree
from smdp_launch.source.script.script import Script, read_script

#: Limits, for source folders that contain whole libraries.
MAX_MODULES = 50
MAX_TOTAL = 512 << 10  # bytes of all modules


def read_with_imports(tree: SourceTree, entry: str, python: tuple[int, int] | None = None) -> dict[str, Script]:
    """``entry`` and the modules of ``tree`` that it imports, directly or indirectly, by name; ``entry`` is the first.

    As Python does in the container, this looks for modules in the entry point's folder and in the source folder.

    Args:
        python: the version that runs them; None if it is not known.
    """
    known = {one.name: one for one in tree.files}
    read: dict[str, Script] = {}
    waiting, total = [entry], 0
    while waiting and len(read) < MAX_MODULES and total <= MAX_TOTAL:
        name = waiting.pop(0)
        if name in read or name not in known:
            continue
        read[name] = read_script(known[name].path, python)
        total += known[name].size
        waiting += [file for one in read[name].imports for file in files_of(one.name, name, entry) if file in known]
    return read


def always_run(scripts: Mapping[str, Script]) -> list[str]:
    """The names of the modules in ``scripts`` that every run of the entry point, the first of them, imports."""
    entry = next(iter(scripts), None)
    imported: list[str] = []
    waiting = [entry] if entry is not None else []
    while waiting:
        name = waiting.pop(0)
        if name not in imported:
            imported.append(name)
            waiting += [
                file
                for one in scripts[name].always_imported
                for file in files_of(one, name, entry or "")
                if file in scripts
            ]
    return imported


def is_complete(tree: SourceTree, scripts: Mapping[str, Script]) -> bool:
    """Whether ``scripts`` has all modules of the source folder that the entry point, the first of them, imports."""
    known, entry = {one.name for one in tree.files}, next(iter(scripts), "")
    wanted = (
        file for name, script in scripts.items() for one in script.imports for file in files_of(one.name, name, entry)
    )
    return not any(one.problem for one in scripts.values()) and not any(
        file in known and file not in scripts for file in wanted
    )


def command_line_of(tree: SourceTree, scripts: Mapping[str, Script]) -> CommandLine | None:
    """The command line of the entry point, the first of ``scripts``; None if it cannot be determined."""
    line = command_line_with_subcommands(tree, scripts)
    return None if line is None or line.subcommands else line


def command_line_with_subcommands(tree: SourceTree, scripts: Mapping[str, Script]) -> CommandLine | None:
    """As ``command_line_of``, but also for a command line with subcommands."""
    return command_line({name: one.command_line for name, one in scripts.items()}, is_complete(tree, scripts))


def files_of(module: str, importer: str, entry: str) -> tuple[str, ...]:
    """The files that ``module`` may be; ``a.b.c`` may be the name ``c`` in the module ``a.b``."""
    absolute = module.lstrip(".")
    level = len(module) - len(absolute)
    if not level:
        beside = entry.rpartition("/")[0]
        return _files(absolute, tuple(dict.fromkeys([beside, ""])))
    folder = importer.split("/")[:-level]
    return _files(absolute, ("/".join(folder),)) if importer.count("/") >= level - 1 else ()


@cache
def _files(module: str, folders: tuple[str, ...]) -> tuple[str, ...]:
    parts = module.split(".") if module else []
    files: list[str] = []
    for folder in folders:
        for length in range(len(parts), 0, -1):
            path = "/".join([*([folder] if folder else []), *parts[:length]])
            files += [f"{path}.py", f"{path}/__init__.py"]
        if not parts:
            files.append(f"{folder}/__init__.py" if folder else "__init__.py")
    return tuple(files)
