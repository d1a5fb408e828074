"""The results of a job on a full disk: the upload waits for space, and results that cannot be uploaded are preserved.

Preserved results move out of the hosts' trees, which are removed with the job, to `JobFolder.results`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdp_launch.disk import is_full
from smdp_launch.localcloud.client.bucket import BucketError
from smdp_launch.localcloud.files import remove_tree
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.protocol.requests import checkpoint_path, tensorboard_path
from smdp_launch.localcloud.runtime.tree import HostTree

_LONGEST_WAIT = 3600.0  # seconds for space, from the first try to the last
_FIRST_GAP, _LONGEST_GAP = 1.0, 60.0  # seconds between two tries; packing a large model takes a while itself
_TICK = 0.05


def upload(action: Callable[[], None], folder: JobFolder, report: Callable[[str], None]) -> None:
    """Do `action`. Retry while the disk is full, for an hour or until a stop is requested.

    `report` is called with the reason of the wait. Raises the BucketError or OSError of `action`.
    """
    until, gap = time.monotonic() + _LONGEST_WAIT, _FIRST_GAP
    stopped_at = _modified_at(folder.stop)  # a job that was stopped uploads its model too
    while True:
        try:
            return action()
        except (BucketError, OSError) as error:
            if not is_disk_full(error) or time.monotonic() > until or _modified_at(folder.stop) != stopped_at:
                raise
        with suppress(OSError):  # the disk is full
            report(
                f"disk full in {folder.state_folder.root}: free space there; "
                f"the job's results stay in {folder.hosts} and are uploaded once there is space"
            )
        next_try = time.monotonic() + gap
        while time.monotonic() < next_try and _modified_at(folder.stop) == stopped_at:
            time.sleep(_TICK)
        gap = min(2 * gap, _LONGEST_GAP)


def is_disk_full(error: Exception) -> bool:
    return error.is_disk_full if isinstance(error, BucketError) else is_full(error)


def _modified_at(path: Path) -> int:
    """The file's modification time, in nanoseconds; 0 where it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def preserve(folder: JobFolder, request: Mapping[str, Any], only: Collection[Path] | None = None) -> None:
    """Move models, outputs and checkpoints of the hosts to `results`; create nothing where there are none.

    Args:
        only: the files in the hosts' trees to which this is limited.

    Raises OSError. One rename moves everything, since it needs no space; the rest of the trees is then removed.
    """
    folder.hosts.rename(folder.results)
    files = None if only is None else {folder.results / one.relative_to(folder.hosts) for one in only}
    for entry in folder.results.iterdir():
        _remove_all_but(_result_paths(HostTree(entry.name, entry), request) if files is None else files, entry)
    if not any(path.is_symlink() or not path.is_dir() for path in folder.results.rglob("*")):
        remove_tree(folder.results)


def location(folder: JobFolder) -> str:
    """The end of a failure reason that names the folder of preserved results; empty where there are none."""
    return f"; the job's results are in {folder.results}" if folder.results.is_dir() else ""


def _result_paths(tree: HostTree, request: Mapping[str, Any]) -> set[Path]:
    checkpoints = request.get("CheckpointConfig")
    paths = {tree.ml / "model", tree.ml / "output/data"}
    board = request.get("TensorBoardOutputConfig")
    if board is not None:
        paths.add(tree.at(tensorboard_path(board)))
    return paths | {tree.at(checkpoint_path(checkpoints))} if checkpoints is not None else paths


def _remove_all_but(kept: set[Path], path: Path) -> None:
    if path in kept:
        return
    if path.is_symlink() or not path.is_dir():
        path.unlink()
    elif any(path in one.parents for one in kept):
        for entry in path.iterdir():
            _remove_all_but(kept, entry)
    else:
        remove_tree(path)
