"""Objects on disk, and moto's view of them.

moto itself keeps objects in memory. This module writes every object below the state folder before the write is
acknowledged, and gives moto a reader of that file: an object needs memory for its index entry, not for its bytes.
Writes survive the death of the server, but not a power failure (there is no fsync).
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from moto.s3.models import FakeBucket, FakeKey, S3Backend

from smdp_launch.localcloud import objects
from smdp_launch.localcloud.arns import REGION
from smdp_launch.localcloud.files import read_json, write_json
from smdp_launch.localcloud.services.s3.values import DiskValue, Value, joined


class Mirror:
    """Keeps `root` and moto's backend equal. Not thread-safe: the caller serialises all use of both."""

    def __init__(self, root: Path, backend: S3Backend) -> None:
        self._root = root
        self._backend = backend

    def load(self) -> None:
        """Load all objects on disk into moto."""
        for folder in sorted(self._root.iterdir()):
            if (folder / objects.INDEX).is_dir():
                bucket = self._backend.create_bucket(folder.name, REGION)
                for key in sorted(self._entries(folder), key=lambda key: str(key.name)):
                    bucket.keys[key.name] = key

    def add_bucket(self, name: str) -> None:
        (self._root / name / objects.INDEX).mkdir(mode=0o700, parents=True, exist_ok=True)

    def sync_buckets(self) -> None:
        """Remove the folders of buckets that no longer exist."""
        for folder in self._root.iterdir():
            if folder.name not in self._backend.buckets:
                shutil.rmtree(folder)

    def sync_key(self, bucket_name: str, name: str) -> None:
        """Write or remove one object so that the disk equals moto's state."""
        bucket = self._backend.buckets.get(bucket_name)
        if bucket is None:
            return
        key = bucket.keys.get(name)
        if key is None:
            self._remove(self._root / bucket_name, name)
        elif not isinstance(key._value_buffer, DiskValue):
            self.write(bucket_name, key, [key._value_buffer])

    def sync_deleted(self, bucket_name: str) -> None:
        """Remove all objects of the bucket from disk that moto no longer has."""
        bucket: FakeBucket = self._backend.buckets[bucket_name]
        folder = self._root / bucket_name
        for path in (folder / objects.INDEX).glob("*.json"):
            entry = read_json(path)
            if entry and bucket.keys.get(entry["key"]) is None:
                self._remove(folder, entry["key"])

    def write(self, bucket_name: str, key: Any, parts: Sequence[Value]) -> None:
        """Write `parts`, joined, as the bytes of an object that moto has, and close them."""
        folder = self._root / bucket_name
        scratch, entry = (folder / objects.INDEX / f"tmp-{secrets.token_hex(8)}" for _ in range(2))
        previous = objects.find(folder, key.name)
        relative = previous.relative_to(folder) if previous else objects.choose_path(folder, key.name)
        path = folder / relative
        # Both files are whole before either is renamed: on a full disk the old object stays as it was.
        try:
            with scratch.open("xb") as file:
                for block in joined(parts):
                    file.write(block)
            write_json(entry, _entry(key, relative, scratch.stat().st_mtime_ns))
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch.replace(path)
            entry.replace(objects.index_path(folder, key.name))
        except OSError:
            scratch.unlink(missing_ok=True)
            entry.unlink(missing_ok=True)
            raise
        for part in parts:
            part.close()
        key._value_buffer = DiskValue(path)

    def _remove(self, folder: Path, name: str) -> None:
        path = objects.find(folder, name)
        objects.index_path(folder, name).unlink(missing_ok=True)
        if path is None:
            return
        path.unlink(missing_ok=True)
        for parent in path.parents:
            if parent in (folder, folder / objects.INDEX) or any(parent.iterdir()):
                break
            parent.rmdir()

    def _entries(self, folder: Path) -> Iterator[Any]:
        for path in (folder / objects.INDEX).iterdir():
            if path.name.startswith(("tmp-", ".")):
                path.unlink()  # left by a server that was killed while it wrote
            elif path.suffix == ".json" and (entry := read_json(path)):
                body = objects.body_path(folder, entry)
                if body.is_file():
                    yield self._restored(folder.name, entry, body)

    def _restored(self, bucket: str, entry: dict[str, Any], body: Path) -> Any:
        status = body.stat()
        # A server that is killed between the two renames of an overwrite leaves new bytes with the old entry. moto then
        # computes the ETag again.
        current = (entry["size"], entry["stamp"]) == (status.st_size, status.st_mtime_ns)
        key: Any = FakeKey(
            name=entry["key"],
            bucket_name=bucket,
            value=b"",
            account_id=self._backend.account_id,
            region_name=REGION,
            etag=entry["etag"] if current else None,
            version_id="null",
        )
        key._value_buffer.close()
        key._value_buffer = DiskValue(body)
        key.contentsize = status.st_size
        key.last_modified = datetime.fromtimestamp(entry["modified"], timezone.utc).replace(tzinfo=None)
        key.set_metadata(dict(entry["metadata"]), replace=False)
        if current:
            key.checksum_algorithm, key.checksum_value, key.checksum_type, key.checksum_parts = entry["checksum"]
        return key


def _entry(key: Any, relative: Path, stamp: int) -> dict[str, Any]:
    """The index entry of an object: the path of its file, and all of moto's data about it."""
    return {
        "key": key.name,
        "path": str(relative),
        "etag": key.etag.strip('"'),
        "size": key.size,
        "stamp": stamp,
        "modified": key.last_modified.replace(tzinfo=timezone.utc).timestamp(),
        "metadata": dict(key.metadata),
        "checksum": [key.checksum_algorithm, key.checksum_value, key.checksum_type, key.checksum_parts],
    }
