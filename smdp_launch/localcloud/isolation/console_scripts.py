"""The scripts of the user's environment, such as torchrun, for a host's own Python environment.

The first line of such a script names the user's Python, which does not find what the job installs. The host gets a
script of the same name that runs the user's script with the host's Python.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_START = 8192  # bytes: the first two lines, with at most two paths
# /bin/sh reads the first two lines, and Python the rest: for `python "$(which torchrun)"`.
_SCRIPT = """\
#!/bin/sh
'''exec' {command} "$@"
' '''
import runpy
runpy.run_path({script!r}, run_name="__main__")
"""


def write(folder: Path, python: Path) -> None:
    """Write a script into `folder` for each script of the user's Python, unless the name exists.

    Args:
        python: the Python that runs the scripts.
    """
    is_users = cache(_is_users_python)  # hundreds of scripts name the same path
    for script in _scripts():
        interpreter, options = _interpreter(script)
        if is_users(interpreter):
            command = shlex.join([str(python), *options, str(script)])
            write_executable(folder / script.name, _SCRIPT.format(command=command, script=str(script)))


def write_executable(path: Path, text: str) -> None:
    """Write a program, unless the path exists: the job may have installed another."""
    if os.path.lexists(path):
        return
    path.write_bytes(os.fsencode(text))
    path.chmod(0o755)


def _scripts() -> Iterator[Path]:
    """The executable files in the folders where pip installs scripts. Of files with the same name, only the first."""
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    if site.ENABLE_USER_SITE:
        folders.append(Path(site.getuserbase(), "bin"))
    names: set[str] = set()
    for folder in folders:
        if os.access(folder, os.R_OK | os.X_OK):
            found = [one.name for one in os.scandir(folder) if os.access(one.path, os.X_OK) and one.is_file()]
            yield from (folder / name for name in found if name not in names)
            names.update(found)


def _interpreter(script: Path) -> tuple[str, list[str]]:
    """The path and the options of the program that runs the script; an empty path for anything but a script.

    `#!/usr/bin/env python` needs no other script: it finds the host's Python.
    """
    try:
        with script.open("rb", buffering=0) as file:
            start = file.read(_START) or b""
    except OSError:
        return "", []
    first, _, rest = os.fsdecode(start).partition("\n")
    path, *options = (first[2:].split(maxsplit=1) if first.startswith("#!") else []) or [""]
    # How pip writes a path that is too long for the first line, or contains a space:
    return _executed(rest.partition("\n")[0]) if path == "/bin/sh" else (path, options)


def _executed(line: str) -> tuple[str, list[str]]:
    """The path and the options in `'''exec' PATH OPTIONS "$0" "$@"`; an empty path for any other line."""
    try:
        words = shlex.split(line) if line.startswith("'''exec' ") else []
    except ValueError:
        words = []
    return (words[1], words[2:-2]) if words[2:] and words[-2:] == ["$0", "$@"] else ("", [])


def _is_users_python(interpreter: str) -> bool:
    """The folder matters too: the Pythons of all virtual environments can be links to the same file."""
    path, users = Path(interpreter), Path(sys.executable)
    try:
        return path.is_absolute() and path.samefile(users) and path.parent.samefile(users.parent)
    except OSError:
        return False
