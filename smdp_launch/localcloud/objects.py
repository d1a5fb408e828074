"""Object keys and the files that hold them.

An object's file is `s3/BUCKET/KEY`, so that users find their model where they expect it. Keys that are not a safe path
(`..`, empty segments, a trailing slash) and keys that clash with another object's path (`a` beside `a/b`) have the file
`s3/BUCKET/.objects/SHA256`. In both cases the index entry `.objects/SHA256.json` names the file.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from smdp_launch.localcloud.files import read_json

BUCKET_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
INDEX = ".objects"
LONGEST_KEY = 1024  # bytes, the service's limit
_LONGEST_NAME = 255  # bytes in one path segment, on every common Linux file system


def _is_safe(segment: str) -> bool:
    if segment in ("", ".", "..", INDEX) or any(ord(character) < 32 for character in segment):
        return False
    try:
        return len(segment.encode()) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


def key_error(key: str) -> str:
    """Why no object can have the key; empty where one can. A file's name may have bytes that are not UTF-8."""
    try:
        return f"it has more than {LONGEST_KEY} bytes" if len(key.encode()) > LONGEST_KEY else ""
    except UnicodeEncodeError:
        return "it is not UTF-8"


def natural_path(key: str) -> Path | None:
    """The relative path with exactly the key's text; None where that is not a safe path."""
    segments = key.split("/")
    return Path(*segments) if all(map(_is_safe, segments)) else None


def digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def index_path(bucket: Path, key: str) -> Path:
    return bucket / INDEX / f"{digest(key)}.json"


def body_path(bucket: Path, entry: Any) -> Path:
    """The file that an index entry names."""
    return bucket / str(entry["path"])


def clashes(bucket: Path, relative: Path) -> bool:
    """Whether a file exists where the path needs a folder, or a folder where it needs the file."""
    if (bucket / relative).is_dir():
        return True
    parents = list(relative.parents)[:-1]
    return any((bucket / parent).exists() and not (bucket / parent).is_dir() for parent in parents)


def choose_path(bucket: Path, key: str) -> Path:
    """The path of a new object's file, relative to the bucket's folder."""
    natural = natural_path(key)
    if natural is None or clashes(bucket, natural):
        return Path(INDEX, digest(key))
    return natural


def find(bucket: Path, key: str) -> Path | None:
    """The object's file, or None where there is no such object."""
    entry = read_json(index_path(bucket, key))
    return body_path(bucket, entry) if entry else None
