"""The folders from which this user has launched jobs on AWS. Each has a history of its own."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_FILE = "folders.txt"


def remember_folder(folder: Path) -> None:
    """Add the folder to the list. An error is ignored: a launch does not depend on the list."""
    path = _path()
    if path is None or folder in known_folders():
        return
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="surrogateescape") as file:
            file.write(f"{folder}\n")


def known_folders() -> list[Path]:
    """The folders that still exist."""
    path = _path()
    if path is None:
        return []
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [Path(one) for one in dict.fromkeys(lines) if one and Path(one).is_dir()]


def _path() -> Path | None:
    try:
        import platformdirs

        return platformdirs.user_data_path("smdp-launch") / _FILE
    except (OSError, RuntimeError, KeyError):  # the user has no home folder
        return None
