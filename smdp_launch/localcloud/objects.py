"""Object keys and the files that hold them.

An object lies at its natural path, `s3/BUCKET/KEY`, so that people find their model where they expect it. Keys that are
no safe path (`..`, empty segments, a trailing slash) and keys that clash with another object's path (`a` beside `a/b`)
lie at `s3/BUCKET/.objects/SHA256`. Either way `.objects/SHA256.json` is the index entry, and it alone says where.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.files import read_json

INDEX = ".objects"
_LONGEST_NAME = 255  # bytes in one path segment, on every common Linux file system


def _is_safe(segment: str) -> bool:
    if segment in ("", ".", "..", INDEX) or any(ord(character) < 32 for character in segment):
        return False
    try:
        return len(segment.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


def natural_path(key: str) -> Path | None:
    """The relative path with exactly the key's text, or None where no safe path has it."""
    segments = key.split("/")
    return Path(*segments) if all(map(_is_safe, segments)) else None


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def index_path(bucket: Path, key: str) -> Path:
    return bucket / INDEX / f"{digest(key)}.json"


def located(bucket: Path, entry: Any) -> Path:
    """Where the bytes of an index entry lie."""
    return bucket / str(entry["path"])


def clashes(bucket: Path, relative: Path) -> bool:
    """Whether a file stands where the path needs a folder, or a folder where it needs the file."""
    if (bucket / relative).is_dir():
        return True
    parents = list(relative.parents)[:-1]
    return any((bucket / parent).exists() and not (bucket / parent).is_dir() for parent in parents)


def choose_path(bucket: Path, key: str) -> Path:
    """The path, relative to the bucket's folder, for an object that is about to be written."""
    natural = natural_path(key)
    if natural is None or clashes(bucket, natural):
        return Path(INDEX, digest(key))
    return natural


def find(bucket: Path, key: str) -> Path | None:
    """The file that holds the object's bytes, or None where there is no such object."""
    entry = read_json(index_path(bucket, key))
    return located(bucket, entry) if entry else None
