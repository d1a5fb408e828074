"""What a job leaves, on a disk that is full: its upload waits for room, and what cannot be uploaded is kept.

What is kept moves out of the hosts' trees, which go with the job, to `JobFolder.results`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdp_launch.disk import is_full
from smdp_launch.localcloud.client.bucket import BucketError
from smdp_launch.localcloud.files import remove_tree
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.protocol.requests import checkpoint_path
from smdp_launch.localcloud.runtime.tree import HostTree

_LONGEST_WAIT = 3600.0  # seconds for room, from the first try to the last
_FIRST_GAP, _LONGEST_GAP = 1.0, 60.0  # seconds between two tries; packing a large model takes a while itself
_TICK = 0.05


def upload(action: Callable[[], None], folder: JobFolder, tell: Callable[[str], None]) -> None:
    """Do `action`, again and again while the disk is full: for an hour, or until the job is to stop.

    `tell` is given the reason of the wait. Raises what `action` does, BucketError or OSError.
    """
    until, gap = time.monotonic() + _LONGEST_WAIT, _FIRST_GAP
    asked = _time_of(folder.stop)  # a job that is stopped leaves a model too
    while True:
        try:
            return action()
        except (BucketError, OSError) as error:
            if not is_disk_full(error) or time.monotonic() > until or _time_of(folder.stop) != asked:
                raise
        with suppress(OSError):  # the disk is full
            tell(
                f"disk full in {folder.state_folder.root}: free space there; "
                f"what the job left stays in {folder.hosts} and is uploaded as soon as there is room"
            )
        again = time.monotonic() + gap
        while time.monotonic() < again and _time_of(folder.stop) == asked:
            time.sleep(_TICK)
        gap = min(2 * gap, _LONGEST_GAP)


def is_disk_full(error: Exception) -> bool:
    return error.is_disk_full if isinstance(error, BucketError) else is_full(error)


def _time_of(mark: Path) -> int:
    """When it was made or replaced; 0 if it is not there."""
    try:
        return mark.stat().st_mtime_ns
    except OSError:
        return 0


def keep(folder: JobFolder, request: Mapping[str, Any]) -> None:
    """Move models, outputs and checkpoints of the hosts to `results`; nothing is made where they left none.

    Raises OSError. One rename moves all, since that needs no room; then goes what nobody wants.
    """
    folder.hosts.rename(folder.results)
    for entry in folder.results.iterdir():
        tree = HostTree(entry.name, entry)
        _remove_all_but(_wanted(tree, request), entry)
    if not any(path.is_symlink() or not path.is_dir() for path in folder.results.rglob("*")):
        remove_tree(folder.results)


def note(folder: JobFolder) -> str:
    """Where results lie that were kept; the end of a failure reason, empty where there are none."""
    return f"; what the job left is kept in {folder.results}" if folder.results.is_dir() else ""


def _wanted(tree: HostTree, request: Mapping[str, Any]) -> set[Path]:
    checkpoints = request.get("CheckpointConfig")
    wanted = {tree.ml / "model", tree.ml / "output/data"}
    return wanted | {tree.at(checkpoint_path(checkpoints))} if checkpoints is not None else wanted


def _remove_all_but(wanted: set[Path], path: Path) -> None:
    if path in wanted:
        return
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    elif any(path in one.parents for one in wanted):
        for entry in path.iterdir():
            _remove_all_but(wanted, entry)
    else:
        remove_tree(path)
