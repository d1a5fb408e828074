"""Folders to which the script writes when it runs outside a container. They are not part of the source."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path, PurePosixPath

from smdp_launch.source.script.script import MAX_SCRIPT

# A default value for a variable that SageMaker sets. In the container the script does not use it.
_DEFAULT = re.compile(
    rb"SM_(?:MODEL|OUTPUT|OUTPUT_DATA|CHECKPOINT)_DIR[\"']\s*(?:,|\]?\)?\s*or)\s*[\"']([A-Za-z0-9_][A-Za-z0-9._/-]*)[\"']"
)
_SEARCHED = 10_000


def output_folders(folder: Path, entry: str) -> frozenset[str]:
    """The folders within ``folder``, relative to it, that the script ``entry`` uses as defaults for its outputs.

    Folders with Python files are omitted, because they may be packages.
    """
    if not entry.endswith(".py"):
        return frozenset()
    try:
        with (folder / entry).open("rb") as file:
            text = file.read(MAX_SCRIPT)
    except (OSError, ValueError):
        return frozenset()
    names = {str(PurePosixPath(one.decode())) for one in _DEFAULT.findall(text)}
    return frozenset(one for one in names if ".." not in one.split("/") and _holds_outputs(folder / one))


def _holds_outputs(folder: Path) -> bool:
    if not folder.is_dir() or folder.is_symlink():
        return False
    names = (name for _, _, files in os.walk(folder) for name in files)
    return not any(name.endswith(".py") for name in islice(names, _SEARCHED))
