"""A second user of the machine: root drops to a user id that owns nothing."""

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
    """Where every user may create files, as in /tmp; pytest's own folders are closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="smdp-shared-", dir="/tmp"))
    folder.chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


#: The interpreter may lie where only root can read, so a script drops its rights when all is imported.
_DROP = "import fcntl, json, os, socket, sys\nos.setgroups([]), os.setgid({0}), os.setuid({0}), os.umask(0)\n"


def start_as_other(script: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A Python script of the other user, with standard input and output piped. What it imports is in `_DROP`."""
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
