"""Which checkpoints are retained, and the removal of the others.

Each save removes them at its end (saving.py, single_file.py, tensorflow_objects.py). Checkpoints in S3 are deleted only
on request, by smdp_launch/jobs/checkpoints/deletion.py.
"""

import contextlib
import shutil
from pathlib import Path
from typing import Iterable, Optional, Set, Tuple

from .marker import MARKER, marked_files


def checked_retention(keep_last: int, keep_every: Optional[int]) -> Tuple[int, Optional[int]]:
    if keep_last < 1:
        raise ValueError(f"keep_last must be 1 or more, found {keep_last}")
    if keep_every is not None and keep_every < 1:
        raise ValueError(f"keep_every must be 1 or more, found {keep_every}")
    return keep_last, keep_every


def retained(steps: Iterable[int], keep_last: int, keep_every: Optional[int]) -> Set[int]:
    """The ``keep_last`` newest of these steps, and the multiples of ``keep_every``."""
    ordered = sorted(steps, reverse=True)
    return set(ordered[:keep_last]) | {step for step in ordered if keep_every and step % keep_every == 0}


def remove_checkpoint(path: Path) -> None:
    """Remove the marker first, so that no moment leaves a marker without its files. Several ranks may do it at once."""
    with contextlib.suppress(OSError):
        (path / MARKER).unlink()
    shutil.rmtree(str(path), ignore_errors=True)


def remove_unmarked(path: Path) -> None:
    """Remove what the marker does not list; the whole checkpoint if there is no marker."""
    marked = marked_files(path)
    if not marked:
        remove_checkpoint(path)
        return
    with contextlib.suppress(OSError):
        for one in path.iterdir():
            if one.name in (MARKER, *marked):
                continue
            if one.is_dir():
                shutil.rmtree(str(one), ignore_errors=True)
            else:
                one.unlink()
