"""Paths of this system as names in archives and keys of S3, and back.

A name has forward slashes on every system. A name from an archive or a bucket may have been chosen to write a file
elsewhere, and may not be possible on this system: Windows reads a backslash as a slash, `a:b` as a hidden part of the
file `a`, and `NUL` as a device.
"""

from __future__ import annotations

import re
from pathlib import PurePath, PurePosixPath, PureWindowsPath

_NOT_ON_WINDOWS = re.compile(r'[\x00-\x1f<>:"|?*\\]')
#: With any extension, and any number of spaces before it.
_DEVICES = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\xb9\xb2\xb3]) *(\..*)?", re.IGNORECASE)


class BadNameError(ValueError):
    """There can be no such file below the folder; the message is the reason, as the end of a sentence that begins with
    the name."""


def name_below(path: PurePath, folder: PurePath) -> str:
    """The name of a path below the folder; "." for the folder itself."""
    return path.relative_to(folder).as_posix()


def checked_name(name: str, system: type[PurePath] = PurePath) -> PurePosixPath:
    """The name, if a file below a folder can have it on this system.

    Args:
        system: a class of paths: of this system, or of another.

    Raises:
        BadNameError: it leads out of the folder, or no file can have it.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts:
        raise BadNameError("leads out of the folder")
    if issubclass(type(system()), PureWindowsPath):
        for part in path.parts:
            if _NOT_ON_WINDOWS.search(part) or part[-1] in ". " or _DEVICES.fullmatch(part):
                raise BadNameError("is no name of a file on Windows")
    return path
