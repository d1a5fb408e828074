"""The marker of a sharded checkpoint: a JSON file that is written last, and lists the size and SHA-256 of all others.

A folder ``checkpoint-<step>`` without a marker, or with a file that differs from it, is torn: it is never loaded.
Hosts write their parts to disks of their own, and the platform's copy in S3 combines them in any order; so the marker
may exist before the files that it lists.
"""

import json
import operator
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional

from .disk import digest, write_whole

MARKER = "COMPLETE"
#: Version of the marker; raised when a field changes its meaning.
VERSION = 1
_NAME = re.compile(r"checkpoint-(\d+)")
_FILE = re.compile(r"[A-Za-z0-9._-]+")


def checked_step(step: Any) -> int:
    """Raises TypeError if the step is no integer, ValueError if it is negative: no file could have its name."""
    try:
        number = operator.index(step)
    except TypeError:
        raise TypeError(f"step must be an integer, found {step!r}") from None
    if number < 0:
        raise ValueError(f"step must be 0 or more, found {number}")
    return number


def path_of(folder: Path, step: int) -> Path:
    return folder / f"checkpoint-{step:010d}"


def steps_in(folder: Path) -> List[int]:
    """The steps of all checkpoints in the folder, torn ones too, the newest first."""
    names = (_NAME.fullmatch(path.name) for path in folder.glob("checkpoint-*"))
    return sorted({int(name[1]) for name in names if name and path_of(folder, int(name[1])).is_dir()}, reverse=True)


def write_marker(path: Path, content: Dict[str, Any]) -> None:
    """Write the marker of the checkpoint at ``path``; the other files must be on the disk."""
    text = json.dumps({"smdp_checkpoint": VERSION, **content})
    write_whole(path / MARKER, lambda partial: partial.write_text(text, encoding="utf-8"))


def read_marker(path: Path) -> Optional[Dict[str, Any]]:
    """The content of the marker; None if it is missing or damaged."""
    try:
        content = json.loads((path / MARKER).read_text(encoding="utf-8"))
        files = content["files"]
        valid = (
            content["smdp_checkpoint"] == VERSION
            and isinstance(content["step"], int)
            and isinstance(content["world_size"], int)
            and all(_FILE.fullmatch(name) and isinstance(one["bytes"], int) for name, one in files.items())
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return content if valid else None


def marked_files(path: Path) -> List[str]:
    """The names that the marker lists; none without a marker."""
    return sorted((read_marker(path) or {"files": {}})["files"])


def torn_reason(path: Path) -> str:
    """Why this checkpoint cannot be loaded, by its marker and the sizes of its files; an empty text if it is whole."""
    content = read_marker(path)
    if content is None:
        return f"{MARKER} is {'damaged' if (path / MARKER).exists() else 'missing'}"
    for name, facts in content["files"].items():
        try:
            size = (path / name).stat().st_size
        except OSError:
            return f"{name} is missing"
        if size != facts["bytes"]:
            return f"{name} has {size} bytes instead of {facts['bytes']}"
    return ""


def damaged_file(path: Path, names: Iterable[str]) -> Optional[str]:
    """The first of these files whose SHA-256 is not that of the marker; None if they are all as written."""
    content = read_marker(path) or {"files": {}}
    for name in names:
        try:
            if digest(path / name) != content["files"][name]["sha256"]:
                return name
        except (OSError, KeyError):
            return name
    return None
