"""Folders to which the script writes: those outside a container, which are not part of the source, and /opt/ml."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path, PurePosixPath

from smdp_launch.source.scan import SourceTree
from smdp_launch.source.script.script import MAX_SCRIPT

# A default value for a variable that SageMaker sets. In the container the script does not use it.
_DEFAULT = re.compile(
    rb"SM_(?:MODEL|OUTPUT|OUTPUT_DATA|CHECKPOINT)_DIR[\"']\s*(?:,|\]?\)?\s*or)\s*[\"']([A-Za-z0-9_][A-Za-z0-9._/-]*)[\"']"
)
_SEARCHED = 10_000
_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".env")
_MOST_CONFIGURATIONS = 100


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


def names_output_folder(tree: SourceTree) -> bool:
    """Whether a configuration file of the script names a path below /opt/ml, or a variable of the platform. The job
    file, which may be in the source folder, is none of its files."""
    files = (one for one in tree.files if one.name.endswith(_CONFIGURATIONS) and one.size <= MAX_SCRIPT)
    return any(_names_output_folder(one.path) for one in islice(files, _MOST_CONFIGURATIONS))


def _names_output_folder(path: Path) -> bool:
    try:
        text = path.read_bytes()
        is_job_file = re.search(rb"^schema:", text, re.MULTILINE) and re.search(rb"^script:", text, re.MULTILINE)
        return not is_job_file and re.search(rb"/opt/ml|\bSM_", text) is not None
    except OSError:
        return False


def _holds_outputs(folder: Path) -> bool:
    if not folder.is_dir() or folder.is_symlink():
        return False
    names = (name for _, _, files in os.walk(folder) for name in files)
    return not any(name.endswith(".py") for name in islice(names, _SEARCHED))
