"""Find the training script of a folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import PurePosixPath

from smdp_launch.source.scan import SourceTree
from smdp_launch.source.script.modules import files_of
from smdp_launch.source.script.script import Script, read_script

#: Limits of the search for the script: files, and bytes of all of them. It starts at the top of the folder.
MAX_READ = 200
MAX_TOTAL = 2 << 20

_TRAINS = re.compile(r"(^|[_-])(train|training|trainer|finetune|fine|pretrain|main|run)([_-]|$)", re.IGNORECASE)
_NEVER = re.compile(r"(test_.*|.*_test|conftest|setup|__init__)\.py")


def python_scripts(tree: SourceTree) -> dict[str, Script]:
    """The folder's Python files that can be scripts, by name."""
    python = [one for one in tree.files if one.name.endswith(".py") and not _NEVER.fullmatch(one.path.name)]
    nearest = sorted(python, key=lambda one: (one.name.count("/"), one.name))[:MAX_READ]
    totals = accumulate(one.size for one in nearest)
    return {one.name: read_script(one.path) for one, total in zip(nearest, totals, strict=True) if total <= MAX_TOTAL}


def training_scripts(scripts: Mapping[str, Script]) -> list[list[str]]:
    """The names of training scripts, in groups of equal score, the best group first.

    A training script imports a framework, perhaps by way of other modules of the folder, and has
    ``if __name__ == "__main__"``. If no script has that, its own import is enough. A process group, the platform's
    variables and the name raise a script's score; its depth lowers it. Scripts with a relative import are last: they
    are modules of a package, and cannot be started by their path.
    """
    running = {name: one for name, one in scripts.items() if one.has_main and _uses_framework(name, scripts)}
    running = running or {name: one for name, one in scripts.items() if one.frameworks}
    groups: dict[tuple[bool, int, int], list[str]] = {}
    for name, one in sorted(running.items()):
        rank = (one.relative_import is None, _score(name, one), -name.count("/"))
        groups.setdefault(rank, []).append(name)
    return [groups[rank] for rank in sorted(groups, reverse=True)]


def _uses_framework(entry: str, scripts: Mapping[str, Script]) -> bool:
    known, waiting = {entry}, [entry]
    while waiting:
        name = waiting.pop()
        if scripts[name].frameworks:
            return True
        imported = (file for one in scripts[name].imports for file in files_of(one.name, name, entry))
        new = {file for file in imported if file in scripts} - known
        known |= new
        waiting += new
    return False


def unreadable(scripts: Mapping[str, Script]) -> Sequence[str]:
    """The reasons why scripts cannot be read, a line for each."""
    return [
        f"{name}{f', line {one.problem.line}' if one.problem.line else ''}: {one.problem.reason}"
        for name, one in scripts.items()
        if one.problem is not None
    ]


def _score(name: str, script: Script) -> int:
    reads_platform = any(one.name.startswith("SM_") for one in script.environment)
    has_name = _TRAINS.search(PurePosixPath(name).stem) is not None
    distributed = script.library is not None or bool(script.process_groups)
    return 2 * has_name + distributed + (reads_platform or bool(script.literal_paths))
