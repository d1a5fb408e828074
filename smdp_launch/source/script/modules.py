"""A script together with the modules of its own folder that it imports."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from smdp_launch.source.scan import SourceTree
from smdp_launch.source.script.commandline import CommandLine, command_line
from smdp_launch.source.script.script import Script, read_script

#: Files, and bytes of all of them. A script's own modules are few; a vendored library need not be read whole.
MAX_MODULES = 50
MAX_TOTAL = 512 << 10


def read_with_imports(tree: SourceTree, entry: str, python: tuple[int, int] | None = None) -> dict[str, Script]:
    """``entry`` and the modules of ``tree`` that it imports, directly or not, by name; ``entry`` is the first.

    Modules are looked for beside the entry and in the folder itself, where Python will find them in the container.

    Args:
        python: the version that will run them; None if it is not known.
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
    """The names of those modules among ``scripts`` whose imports run whenever the entry, the first of them, does."""
    entry = next(iter(scripts), None)
    reached: list[str] = []
    waiting = [entry] if entry is not None else []
    while waiting:
        name = waiting.pop(0)
        if name not in reached:
            reached.append(name)
            waiting += [
                file
                for one in scripts[name].always_imported
                for file in files_of(one, name, entry or "")
                if file in scripts
            ]
    return reached


def is_complete(tree: SourceTree, scripts: Mapping[str, Script]) -> bool:
    """Whether all modules of the source folder that the entry, the first of ``scripts``, imports could be read."""
    known, entry = {one.name for one in tree.files}, next(iter(scripts), "")
    wanted = (
        file for name, script in scripts.items() for one in script.imports for file in files_of(one.name, name, entry)
    )
    return not any(one.problem for one in scripts.values()) and not any(
        file in known and file not in scripts for file in wanted
    )


def command_line_of(tree: SourceTree, scripts: Mapping[str, Script]) -> CommandLine | None:
    """What the entry, the first of ``scripts``, and its modules accept together; None where that cannot be known."""
    return command_line({name: one.command_line for name, one in scripts.items()}, is_complete(tree, scripts))


def files_of(module: str, importer: str, entry: str) -> tuple[str, ...]:
    """Where ``module`` may lie; ``a.b.c`` may be the name ``c`` in the module ``a.b``."""
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
    found: list[str] = []
    for folder in folders:
        for length in range(len(parts), 0, -1):
            path = "/".join([*([folder] if folder else []), *parts[:length]])
            found += [f"{path}.py", f"{path}/__init__.py"]
        if not parts:
            found.append(f"{folder}/__init__.py" if folder else "__init__.py")
    return tuple(found)
