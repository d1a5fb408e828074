"""Versions of the files and folders that a later smdp-launch reads (docs/reference/stability.md).

A folder has its version in the file ``version``. Without that file it is of version 1, as all folders were before there
was one.
"""

from __future__ import annotations

from pathlib import Path

from smdp_launch.private_files import NotPrivate, read_bytes, write_bytes

FILE = "version"
_NOTHING = "\0 \t\r\n"  # of which a file consists that has lost its content
UPGRADE = "upgrade it (`pip install --upgrade --find-links FOLDER smdp-launch`, with the folder of its wheels)"


class NewerVersion(Exception):
    """A newer smdp-launch has written the folder; the message says what to do."""


def check_folder_version(folder: Path, known: int) -> None:
    """Raises NewerVersion if the folder is of a version above ``known``, or its version cannot be read.

    A folder with an empty version file is of version 1, as one without the file: if the power fails, the file system
    may keep the file and lose its content.
    """
    path = folder / FILE
    try:
        text = read_bytes(path).decode("ascii", "replace").strip(_NOTHING)
    except NotPrivate:
        raise
    except OSError:
        return
    if not text:
        return
    if not text.isdecimal():
        raise NewerVersion(
            f"{path} has no version: remove the file if no newer smdp-launch has used the folder, or use another one"
        )
    if int(text) > known:
        raise NewerVersion(
            f"a newer smdp-launch has written {folder} (its version is {text}, and this smdp-launch reads {known}): "
            f"{UPGRADE}, or work in another folder"
        )


def write_folder_version(folder: Path, version: int) -> None:
    """Write the version, unless the folder has one."""
    path = folder / FILE
    if not path.exists() or not read_bytes(path).strip(_NOTHING.encode()):
        write_bytes(path, f"{version}\n".encode())


def other_version(path: Path, version: object, known: int, again: str) -> str | None:
    """Why a file of this version is not read, and what to do; None for the known version.

    Args:
        again: how to write the file again, as an imperative.
    """
    if version == known and not isinstance(version, bool):
        return None
    if isinstance(version, int) and version > known:
        newer = f"a newer smdp-launch has written {path} (its version is {version}, and this smdp-launch reads {known})"
        return f"{newer}: {UPGRADE}, or {again}"
    return f"an older smdp-launch has written {path} (its version is {version!r}, not {known}): {again}"
