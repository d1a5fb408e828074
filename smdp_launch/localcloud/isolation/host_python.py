"""A host's own Python environment: the packages of this Python and, before them, those that the job installs.

It is a virtual environment below the host's tree. pip and console scripts of the job use it, so the user's environment
stays as it is, and no two hosts install into the same folder. A requirement that the user's environment satisfies is
not installed again.
"""

from __future__ import annotations

import os
import shlex
import site
import sys
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

# The user's environment has programs with these names, which install there.
_PIP = ("pip", "pip3", f"pip{sys.version_info.major}.{sys.version_info.minor}")


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

    @property
    def packages(self) -> Path:
        """For PYTHONPATH: programs of the user's environment, such as torchrun, start the user's Python."""
        return next(self.folder.glob("lib/python*/site-packages"))

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """`environment` with PATH and PYTHONPATH that find this environment first."""
        path = [str(self.programs), *filter(None, [environment.get("PATH")])]
        modules = [str(self.packages), *filter(None, [environment.get("PYTHONPATH")])]
        return {**environment, "PATH": os.pathsep.join(path), "PYTHONPATH": os.pathsep.join(modules)}


def create(folder: Path) -> HostPython:
    """Create the environment, unless it exists. Raises OSError."""
    _Builder(symlinks=True).create(folder)
    return HostPython(folder)


class _Builder(venv.EnvBuilder):
    def setup_scripts(self, context: SimpleNamespace) -> None:
        """Without the scripts that activate the environment in a shell."""
        for name in _PIP:
            script = Path(context.bin_path, name)
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(context.env_exe)} -m pip "$@"\n')
            script.chmod(0o755)

    def post_setup(self, context: SimpleNamespace) -> None:
        packages = HostPython(Path(context.env_dir)).packages
        (packages / "packages_of_the_user.pth").write_text("".join(f"{line}\n" for line in _lines()))


def _lines() -> Iterator[str]:
    """Of a .pth file: add the folders of this Python's packages, and then what the .pth files in them add.

    The folders have lines of their own, so that pip finds and removes them where it builds a package in isolation.
    """
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    folders = [*users, *site.getsitepackages()]
    yield from folders
    yield from (f"import site; site.addsitedir({folder!r})" for folder in folders)
