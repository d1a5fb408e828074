"""What a checkpoint says about itself: the marker of a sharded one, and ``LATEST`` of checkpoints of one file.

`smdp_engine.checkpoint` writes both, with the size and the SHA-256 of each file. They come from a bucket, so every
value is checked before it is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: The marker of a sharded checkpoint, which is written last.
MARKER = "COMPLETE"
#: The file with the facts of the newest checkpoint of one file.
LATEST = "LATEST"
#: Bytes. A marker has about 130 for each rank.
LARGEST = 64 << 20
_VERSION = 1
_FILE = re.compile(r"[A-Za-z0-9._-]{1,255}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class FileFacts:
    size: int
    sha256: str


@dataclass(frozen=True)
class Marker:
    """Args:
    seconds: from the start of the save until all ranks had written their parts; None if the marker has no such value.
    """

    step: int
    ranks: int
    hosts: int | None
    seconds: float | None
    files: Mapping[str, FileFacts]


def parse_marker(content: bytes) -> Marker | None:
    """None if it is damaged, or of a later version."""
    document = _document(content)
    try:
        if document["smdp_checkpoint"] != _VERSION:
            return None
        files = {name: _facts(one) for name, one in document["files"].items() if _FILE.fullmatch(name)}
        if len(files) != len(document["files"]):
            return None
        hosts, seconds = document.get("hosts"), document.get("seconds")
        return Marker(
            _count(document["step"]),
            _count(document["world_size"]),
            _count(hosts) if hosts is not None else None,
            float(seconds) if isinstance(seconds, int | float) else None,
            files,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def parse_latest(content: bytes) -> tuple[str, FileFacts] | None:
    """The name of the newest file, and its facts; None if they are damaged."""
    document = _document(content)
    try:
        name = document["name"]
        return (name, _facts(document)) if _FILE.fullmatch(name) else None
    except (KeyError, TypeError, ValueError):
        return None


def _document(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _facts(one: Mapping[str, Any]) -> FileFacts:
    if not _SHA256.fullmatch(one["sha256"]):
        raise ValueError("no SHA-256")
    return FileFacts(_count(one["bytes"]), one["sha256"])


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError("no count")
    return value
