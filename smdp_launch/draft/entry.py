"""Which of a folder's scripts trains."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import PurePosixPath

from smdp_launch.source.scan import SourceTree
from smdp_launch.source.script.script import Script, read_script

#: Files, and bytes of all of them, that are read in search of the script; the top of the folder comes first.
MAX_READ = 200
MAX_TOTAL = 2 << 20

_TRAINS = re.compile(r"(^|[_-])(train|training|trainer|finetune|fine|pretrain|main|run)([_-]|$)", re.IGNORECASE)
_NEVER = re.compile(r"(test_.*|.*_test|conftest|setup|__init__)\.py")


def python_scripts(tree: SourceTree) -> dict[str, Script]:
    """The folder's Python files by name, as far as they may be scripts."""
    python = [one for one in tree.files if one.name.endswith(".py") and not _NEVER.fullmatch(one.path.name)]
    nearest = sorted(python, key=lambda one: (one.name.count("/"), one.name))[:MAX_READ]
    totals = accumulate(one.size for one in nearest)
    return {one.name: read_script(one.path) for one, total in zip(nearest, totals, strict=True) if total <= MAX_TOTAL}


def training_scripts(scripts: Mapping[str, Script]) -> list[list[str]]:
    """The names of scripts that train, in groups of equally good ones, the best group first.

    A training script imports a framework and has ``if __name__ == "__main__"``; where none has that, the import is
    enough. Among them the launch of a process group, the platform's variables and the name speak for a script, and
    a place deep in the folder against it.
    """
    importing = {name: one for name, one in scripts.items() if one.frameworks}
    running = {name: one for name, one in importing.items() if one.has_main} or importing
    groups: dict[tuple[int, int], list[str]] = {}
    for name, one in sorted(running.items()):
        groups.setdefault((_signs(name, one), -name.count("/")), []).append(name)
    return [groups[rank] for rank in sorted(groups, reverse=True)]


def unreadable(scripts: Mapping[str, Script]) -> Sequence[str]:
    """What keeps scripts from being read, a line for each."""
    return [
        f"{name}{f', line {one.problem.line}' if one.problem.line else ''}: {one.problem.reason}"
        for name, one in scripts.items()
        if one.problem is not None
    ]


def _signs(name: str, script: Script) -> int:
    reads_platform = any(one.name.startswith("SM_") for one in script.environment)
    named_so = _TRAINS.search(PurePosixPath(name).stem) is not None
    distributed = script.library is not None or bool(script.process_groups)
    return 2 * named_so + distributed + (reads_platform or bool(script.literal_paths))
