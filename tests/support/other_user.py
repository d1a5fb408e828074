"""A second user of the machine: root switches to a user id that owns nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER = 65534
needs_another_user = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder in which every user may create files, as in /tmp; pytest's own folders are closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="smdp-shared-", dir="/tmp"))
    folder.chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


#: Only root may be able to read the interpreter, so a script drops its rights after the imports.
_DROP = "import fcntl, json, os, socket, sys\nos.setgroups([]), os.setgid({0}), os.setuid({0}), os.umask(0)\n"


def start_as_other(script: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python script as the other user, with piped standard input and output. `_DROP` has its imports."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _DROP.format(OTHER) + script, *arguments],
        cwd=folder,
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run_as_other(script: str, folder: Path, *arguments: str) -> str:
    process = start_as_other(script, folder, *arguments)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out
