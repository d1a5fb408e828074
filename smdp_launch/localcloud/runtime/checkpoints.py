"""Copy checkpoints to every host at the start, and from every host to the bucket while the job runs.

As on AWS there is no folder per host: hosts that write the same name overwrite each other, and a file that a host
deletes is deleted in the bucket.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdp_launch.disk import is_full
from smdp_launch.localcloud.client.bucket import BucketError, Buckets, during
from smdp_launch.localcloud.protocol.requests import checkpoint_path, split_uri
from smdp_launch.localcloud.runtime.channels import relative_path
from smdp_launch.localcloud.runtime.tree import HostTree

_INTERVAL = 1.0  # seconds between two syncs

Stamp = tuple[int, int, int]


class CheckpointSync:
    """Runs one thread from `start` to `finish`.

    Args:
        buckets: used by that thread; no other thread may use it.
        scratch: path for the copy that is uploaded, so that the file itself may change during the upload.
    """

    def __init__(self, config: Mapping[str, Any], trees: Sequence[HostTree], buckets: Buckets, scratch: Path) -> None:
        self._bucket, prefix = split_uri(config["S3Uri"])
        self._prefix = f"{prefix.rstrip('/')}/" if prefix else ""
        self._folders = [tree.at(checkpoint_path(config)) for tree in trees]
        self._known: list[dict[str, Stamp]] = [{} for _ in trees]
        self._buckets = buckets
        self._scratch = scratch
        self._done = threading.Event()
        self.restored = 0  # files that every host got
        self._until = math.inf
        self._uploaded = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def has_uploaded(self) -> bool:
        """Whether a file has reached the bucket."""
        return self._uploaded

    def restore(self) -> None:
        """Download the bucket's checkpoints to every host."""
        with during("Checkpoint download failed"):
            self._restore()

    def _restore(self) -> None:
        for key in self._buckets.keys(self._bucket, self._prefix):
            first, *others = (folder / relative_path(key, self._prefix) for folder in self._folders)
            first.parent.mkdir(parents=True, exist_ok=True)
            self._buckets.download(self._bucket, key, first)
            for path in others:
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(first, path)
        self._known = [_stamps(folder) for folder in self._folders]
        self.restored = len(self._known[0])

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
            except (BucketError, OSError) as error:
                with suppress(OSError):  # the log may be on the disk that is full
                    sys.stderr.write(f"checkpoints: {error}\n")  # the next sync retries, and so does `finish`

    def _sync(self) -> None:
        with during("Checkpoint upload failed"):
            self._upload_changes()

    def _upload_changes(self) -> None:
        for number, folder in enumerate(self._folders):
            known = self._known[number]
            found = _stamps(folder)
            for name, stamp in found.items():
                if time.monotonic() >= self._until:
                    return
                if known.get(name) != stamp and self._upload(folder / name, name):
                    known[name] = stamp
            for name in set(known) - set(found) if time.monotonic() < self._until else ():
                self._buckets.delete(self._bucket, self._prefix + name)
                del known[name]

    def _upload(self, path: Path, name: str) -> bool:
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
        self._buckets.upload(self._scratch, self._bucket, self._prefix + name)
        self._uploaded = True
        return True


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino


def _stamps(folder: Path) -> dict[str, Stamp]:
    stamps = {}
    for root, _folders, names in os.walk(folder):  # unlike rglob, skips folders that vanish meanwhile
        for name in names:
            path = Path(root, name)
            try:
                status = path.lstat()
            except OSError:
                continue  # renamed or removed meanwhile
            if stat.S_ISREG(status.st_mode):
                stamps[path.relative_to(folder).as_posix()] = _stamp(status)
    return stamps
