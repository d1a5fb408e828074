"""Copy checkpoints to every host at the start, and checkpoints and TensorBoard's event files from every host to the
bucket while the job runs.

As on AWS there is no folder per host: hosts that write the same name overwrite each other, and a checkpoint that a host
deletes is deleted in the bucket.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdp_launch.disk import is_full
from smdp_launch.localcloud.client.bucket import Buckets, during
from smdp_launch.localcloud.objects import key_error
from smdp_launch.localcloud.protocol.requests import checkpoint_path, split_uri, tensorboard_path
from smdp_launch.localcloud.runtime.channels import relative_path
from smdp_launch.localcloud.runtime.tree import HostTree

_INTERVAL = 1.0  # seconds between two syncs

#: A file of a sharded checkpoint before its marker, COMPLETE: alone it is no checkpoint.
_PART = re.compile(r"checkpoint-\d+/(?:__\d+_\d+\.distcp|\.metadata(?:\.new)?|\..*\.partial)")

_VANISHED = (FileNotFoundError, NotADirectoryError)  # renamed or removed while the folder is listed

Stamp = tuple[int, int, int]


class _Copy:
    """A folder that every host has, and its location in the object store.

    Args:
        follows_deletions: a file that a host deletes is deleted in the bucket.
    """

    def __init__(self, what: str, uri: str, folders: Sequence[Path], follows_deletions: bool) -> None:
        self.what = what
        self.bucket, prefix = split_uri(uri)
        self.prefix = f"{prefix.rstrip('/')}/" if prefix else ""
        self.folders = folders
        self.known: list[dict[str, Stamp]] = [{} for _ in folders]
        self.follows_deletions = follows_deletions
        self.has_uploaded = False


class FolderSync:
    """Copies the folders of `CheckpointConfig` and `TensorBoardOutputConfig`. Runs one thread from `start` to `finish`.

    Args:
        buckets: used by that thread; no other thread may use it.
        scratch: path for the copy that is uploaded, so that the file itself may change during the upload.
        report: gets a message about each file that is not uploaded.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        trees: Sequence[HostTree],
        buckets: Buckets,
        scratch: Path,
        report: Callable[[str], None],
    ) -> None:
        self._checkpoints = self._event_files = None
        config, board = request.get("CheckpointConfig"), request.get("TensorBoardOutputConfig")
        if config is not None:
            folders = [tree.at(checkpoint_path(config)) for tree in trees]
            self._checkpoints = _Copy("Checkpoint", config["S3Uri"], folders, follows_deletions=True)
        if board is not None:
            where = f"{board['S3OutputPath'].rstrip('/')}/{request['TrainingJobName']}/tensorboard-output"
            folders = [tree.at(tensorboard_path(board)) for tree in trees]
            self._event_files = _Copy("TensorBoard", where, folders, follows_deletions=False)
        self._copies = [one for one in (self._checkpoints, self._event_files) if one is not None]
        self._buckets = buckets
        self._scratch = scratch
        self._report = report
        self.skipped: set[Path] = set()  # files whose names cannot be keys
        self._links: set[Path] = set()  # that were reported
        self._done = threading.Event()
        self.restored = 0  # files that every host got
        self._until = math.inf
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def has_uploaded(self) -> bool | None:
        """Whether a checkpoint has reached the bucket; None for a job without checkpoints."""
        return self._checkpoints.has_uploaded if self._checkpoints is not None else None

    def restore(self) -> None:
        """Download the bucket's checkpoints to every host."""
        if self._checkpoints is not None:
            with during("Checkpoint download failed"):
                self._restore(self._checkpoints)

    def _restore(self, copy: _Copy) -> None:
        for key in self._buckets.keys(copy.bucket, copy.prefix):
            first, *others = (folder / relative_path(key, copy.prefix) for folder in copy.folders)
            first.parent.mkdir(parents=True, exist_ok=True)
            self._buckets.download(copy.bucket, key, first)
            for path in others:
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(first, path)
        copy.known = [_stamps(folder)[0] for folder in copy.folders]
        self.restored = len(copy.known[0])

    def start(self) -> None:
        self._thread.start()

    def finish(self, until: float = math.inf) -> None:
        """Stop the thread and upload the last changes. The hosts must have exited.

        No upload starts after `until`, a time of `time.monotonic`; the remaining files are lost.
        """
        self._until = until
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        self._sync()

    def abandon(self) -> None:
        """Stop the thread and upload nothing more: the folders are about to be removed, the bucket stays as it is."""
        self._until = -math.inf
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(_INTERVAL):
            try:
                self._sync()
            except Exception as error:  # the next sync retries, and so does `finish`
                with suppress(OSError):  # the log may be on the disk that is full
                    sys.stderr.write(f"copies of folders: {error!r}\n")

    def _sync(self) -> None:
        for copy in self._copies:
            with during(f"{copy.what} upload failed"):
                self._upload_changes(copy)

    def _upload_changes(self, copy: _Copy) -> None:
        for folder, known in zip(copy.folders, copy.known, strict=True):
            found, is_complete, links = _stamps(folder)
            self._report_links(copy, folder, links)
            for name, stamp in found.items():
                if time.monotonic() >= self._until:
                    return
                if known.get(name) == stamp or self._skips(copy, folder / name, name):
                    continue
                if self._upload(copy, folder / name, name):
                    known[name] = stamp
            deletes = is_complete and copy.follows_deletions and time.monotonic() < self._until
            for name in set(known) - set(found) if deletes else ():
                self._buckets.delete(copy.bucket, copy.prefix + name)
                del known[name]

    def _report_links(self, copy: _Copy, folder: Path, links: list[Path]) -> None:
        new = [path for path in links if path not in self._links]
        if new:
            self._links.update(new)
            names = ", ".join(repr(os.fsencode(path.relative_to(folder)))[1:] for path in new[:3])
            more = f" and {len(new) - 3} more" if new[3:] else ""
            self._report(f"{copy.what} upload: the local cloud does not upload symbolic links: {names}{more}")

    def _skips(self, copy: _Copy, path: Path, name: str) -> bool:
        """Whether no object can have the file's name, which is reported once."""
        error = key_error(copy.prefix + name)
        if error and path not in self.skipped:
            self.skipped.add(path)
            self._report(f"{copy.what} upload: {os.fsencode(name)!r} is skipped: {error}, so it cannot be a key in S3")
        return bool(error)

    def _upload(self, copy: _Copy, path: Path, name: str) -> bool:
        """False where the file changed or vanished during the copy; the next sync retries."""
        try:
            before = _stamp(path.stat())
            shutil.copyfile(path, self._scratch)
            if _stamp(path.stat()) != before:
                return False
        except OSError as error:
            if is_full(error):
                self._scratch.unlink(missing_ok=True)
                raise
            return False
        self._buckets.upload(self._scratch, copy.bucket, copy.prefix + name)
        copy.has_uploaded = copy.has_uploaded or _PART.fullmatch(name) is None
        return True


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino


def _stamps(folder: Path) -> tuple[dict[str, Stamp], bool, list[Path]]:
    """The files below the folder; False where some may be missing, since they could not be listed; symbolic links."""
    stamps, links, errors = dict[str, Stamp](), list[Path](), list[OSError]()
    for root, folders, names in os.walk(folder, onerror=errors.append):  # unlike rglob, skips folders that vanish
        for name in (*names, *folders):
            path = Path(root, name)
            try:
                status = path.lstat()
            except OSError as error:
                errors.append(error)
                continue
            if stat.S_ISREG(status.st_mode):
                stamps[path.relative_to(folder).as_posix()] = _stamp(status)
            elif stat.S_ISLNK(status.st_mode):
                links.append(path)
    return stamps, all(isinstance(one, _VANISHED) for one in errors), sorted(links)
