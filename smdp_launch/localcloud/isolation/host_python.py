"""A host's own Python environment: the packages of this Python and, before them, those that the job installs.

It is a virtual environment below the host's tree. pip and the scripts of the user's environment use it, so the user's
environment stays as it is, and no two hosts install into the same folder. A requirement that the user's environment
satisfies is not installed again.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from smdp_launch.localcloud.isolation import console_scripts

# The user's environment has programs with these names, which install there.
_PIP = ("pip", "pip3", f"pip{sys.version_info.major}.{sys.version_info.minor}")
_USERS = "~packages_of_the_user.pth"  # read last: the job's editable packages come before it


@dataclass(frozen=True)
class HostPython:
    """An environment that exists."""

    folder: Path

    @property
    def programs(self) -> Path:
        """For PATH."""
        return self.folder / "bin"

    @property
    def executable(self) -> Path:
        return self.programs / "python"

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """`environment` with a PATH that finds this environment first. A path with a colon cannot be in PATH."""
        if os.pathsep in str(self.programs):
            return dict(environment)
        path = [str(self.programs), *filter(None, [environment.get("PATH")])]
        return {**environment, "PATH": os.pathsep.join(path)}


def create(folder: Path) -> HostPython:
    """Create the environment, unless it exists. Raises OSError."""
    host = HostPython(folder.absolute())
    with tempfile.TemporaryDirectory() as temporary:
        # venv refuses a path with a colon. The environment works at such a path: only PATH cannot name it.
        link = Path(temporary, "host")
        link.symlink_to(host.folder.parent)
        _Builder(host).create(link / folder.name)
    return host


class _Builder(venv.EnvBuilder):
    def __init__(self, host: HostPython) -> None:
        super().__init__(symlinks=True)
        self._host = host

    def setup_scripts(self, context: SimpleNamespace) -> None:
        """Without the scripts that activate the environment in a shell."""
        python = self._host.executable
        for name in _PIP:
            text = f'#!/bin/sh\nexec {shlex.quote(str(python))} -m pip "$@"\n'
            console_scripts.write_executable(self._host.programs / name, text)
        console_scripts.write(self._host.programs, python)

    def post_setup(self, context: SimpleNamespace) -> None:
        packages = next(self._host.folder.glob("lib/python*/site-packages"))
        (packages / _USERS).write_text("".join(f"{line}\n" for line in _lines()))


def _lines() -> Iterator[str]:
    """Of a .pth file: add the folders of this Python's packages, and then what the .pth files in them add.

    The folders have lines of their own, so that pip finds and removes them where it builds a package in isolation.
    """
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    folders = [*users, *site.getsitepackages()]
    yield from folders
    yield from (f"import site; site.addsitedir({folder!r})" for folder in folders)
