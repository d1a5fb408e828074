"""Which checkpoint all ranks load: the newest one that is complete on every host."""

import os
import sys
from pathlib import Path
from typing import Any, Callable, Optional, Tuple

from .errors import CheckpointError
from .marker import damaged_file, marked_files, path_of, steps_in, torn_reason
from .ranks import agree, is_distributed, rank

#: The smallest or largest (MIN or MAX) of the ranks' values.
Agree = Callable[[int, str], int]


def choose_step_of_group(folder: Path, group: Any) -> Optional[int]:
    """As `choose_step`, for the ranks of a process group of torch."""
    part, parts = own_part(group)
    return choose_step(folder, rank(group), part, parts, lambda value, operation: agree(value, operation, group))


def choose_step(folder: Path, own_rank: int, part: int, parts: int, agreed: Agree) -> Optional[int]:
    """The step; None if no rank has a complete checkpoint. A checkpoint that is not loaded is reported on stderr.

    Args:
        part, parts: this rank reads every ``parts``-th file, from number ``part`` on, to verify it.

    Raises:
        CheckpointError: this rank or another one has a complete checkpoint, and not all of them have one.
    """
    reports = part == 0
    whole = []
    for step in steps_in(folder):
        why = torn_reason(path_of(folder, step))
        if not why:
            whole.append(step)
        elif reports:
            report_not_loaded(path_of(folder, step), why)
    has_any, rejected = bool(whole), sys.maxsize
    while True:
        own = next((step for step in whole if step < rejected), -1)
        step = agreed(own, "MIN")
        if step < 0:
            if agreed(int(has_any), "MAX"):
                problem = "no complete checkpoint" if not has_any else "no undamaged checkpoint that all ranks have"
                raise CheckpointError(f"rank {own_rank} finds {problem} in {folder}: {_HELP}")
            return None
        damaged = _damage(folder, step, part, parts) if step in whole else "it is not on this host"
        if not agreed(int(damaged is not None), "MAX"):
            return step
        if damaged is not None:
            report_not_loaded(path_of(folder, step), damaged)
        rejected = step


_HELP = "restore the folder from S3, where the parts of all hosts are, or delete it to begin anew"


def _damage(folder: Path, step: int, part: int, parts: int) -> Optional[str]:
    path = path_of(folder, step)
    name = damaged_file(path, marked_files(path)[part::parts])
    return f"{name} differs from what was written" if name is not None else None


def own_part(group: Any) -> Tuple[int, int]:
    """The ranks of a host divide the files that they check."""
    if group is not None or not is_distributed():
        return 0, 1
    try:
        own, count = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
    return (own, count) if 0 <= own < count else (0, 1)


def report_not_loaded(path: Path, why: str) -> None:
    sys.stderr.write(f"smdp: {path} is not loaded: {why}\n")
