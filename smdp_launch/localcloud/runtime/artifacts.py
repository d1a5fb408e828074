"""The artifacts of a job: model.tar.gz and output.tar.gz under the output path."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from smdp_launch.localcloud.client.bucket import BucketError, Buckets, during
from smdp_launch.localcloud.objects import key_error
from smdp_launch.localcloud.protocol.requests import split_uri
from smdp_launch.localcloud.runtime.tree import HostTree

_COMPRESSION = 3  # of gzip's 1 to 9: a local run must not spend longer on packing than on training


def merged(folders: Sequence[Path]) -> dict[str, Path]:
    """Relative names and files of several hosts' folders. Where two hosts have the same name, the first host wins."""
    files: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or path.is_file() or path.is_dir():
                files.setdefault(path.relative_to(folder).as_posix(), path)
    return dict(sorted(files.items()))


def pack(files: Mapping[str, Path], archive: Path) -> None:
    """Write a tar.gz. The same files give the same bytes: sorted names, no times, no owners."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = 0
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in files.items():
            tar.inodes.clear()  # type: ignore[attr-defined] # or a file's second name becomes a hard link to the first
            tar.add(path, name, recursive=False, filter=plain)


def model_address(request: Mapping[str, Any]) -> str:
    """The model's S3 address, whether or not the object exists: as on AWS, a job without a model uploads nothing."""
    bucket, prefix = _destination(request)
    return f"s3://{bucket}/{prefix}/{'model.tar.gz' if _compresses(request) else 'model/'}"


def _destination(request: Mapping[str, Any]) -> tuple[str, PurePosixPath]:
    """The bucket and the prefix of the job's artifacts."""
    bucket, prefix = split_uri(request["OutputDataConfig"]["S3OutputPath"])
    return bucket, PurePosixPath(prefix, request["TrainingJobName"], "output")


def _compresses(request: Mapping[str, Any]) -> bool:
    return str(request["OutputDataConfig"].get("CompressionType", "GZIP")) != "NONE"


class Artifacts:
    """Uploads to `<S3OutputPath>/<job>/output/`; `scratch` is a folder for the archives."""

    def __init__(self, request: Mapping[str, Any], buckets: Buckets, scratch: Path) -> None:
        self._bucket, self._prefix = _destination(request)
        self._compress = _compresses(request)
        self._buckets = buckets
        self._scratch = scratch

    def check_bucket(self) -> None:
        """Raises BucketError where the bucket does not exist."""
        self._buckets.check(self._bucket)

    def upload_model(self, trees: Sequence[HostTree]) -> str | None:
        """The model's S3 address, or None where no host has a model."""
        files = merged([tree.ml / "model" for tree in trees])
        if not files:
            return None
        if self._compress:
            return self._upload_archive(files, "model.tar.gz")
        for name, path in files.items():
            if path.is_file():
                self._upload(path, f"model/{name}")
        return f"s3://{self._bucket}/{self._prefix}/model/"

    def upload_output(self, trees: Sequence[HostTree]) -> None:
        files = merged([tree.ml / "output/data" for tree in trees])
        if files:
            self._upload_archive(files, "output.tar.gz")

    def _upload(self, path: Path, name: str) -> None:
        key = f"{self._prefix}/{name}"
        with during("Artifact upload failed"):
            error = key_error(key)
            if error:
                raise BucketError("InvalidKey", f"{os.fsencode(name)!r} cannot be a key: {error}", 400)
            self._buckets.upload(path, self._bucket, key)

    def _upload_archive(self, files: Mapping[str, Path], name: str) -> str:
        archive = self._scratch / name
        try:
            pack(files, archive)
            self._upload(archive, name)
        finally:
            archive.unlink(missing_ok=True)  # also after an error: on a full disk the next try needs its space
        return f"s3://{self._bucket}/{self._prefix}/{name}"
