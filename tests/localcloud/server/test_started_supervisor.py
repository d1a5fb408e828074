"""A supervisor starts before its folder has a name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from smdp_launch.localcloud.files import Lock
from smdp_launch.localcloud.layout import JobFolder
from tests.support.waiting import DEADLINE

SUPERVISOR = """
from smdp_launch.localcloud.layout import JobFolder
from smdp_launch.localcloud.started_supervisor import own_folder
print(own_folder(JobFolder).name)
"""


def supervisor(*arguments: object, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SUPERVISOR, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=pass_fds)


@contextmanager
def waiting(draft: JobFolder, folder: JobFolder) -> Iterator[subprocess.Popen[str]]:
    """A supervisor of the draft. The server names it, or not, and ends with the context."""
    draft.root.mkdir()
    lock = Lock(draft.lock)
    reads, named = os.pipe()
    process = supervisor(folder.root, reads, pass_fds=(lock.fileno(), reads))
    try:
        yield process
    finally:
        for descriptor in (reads, named):
            os.close(descriptor)
        lock.release()


def printed(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    return output.strip()


def test_supervisor_has_the_folder_once_it_is_named(tmp_path: Path) -> None:
    draft, folder = JobFolder(tmp_path / "draft"), JobFolder(tmp_path / "job")
    with waiting(draft, folder) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # however late it starts, it cannot end before
        draft.root.rename(folder.root)
    assert printed(process) == "job"


def test_supervisor_whose_folder_was_never_named_exits(tmp_path: Path) -> None:
    with waiting(JobFolder(tmp_path / "draft"), JobFolder(tmp_path / "job")) as process:
        pass
    assert printed(process) == ""


def test_supervisor_leaves_the_folder_of_another_alone(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path / "job")
    folder.root.mkdir()
    Lock(folder.lock).release()
    with waiting(JobFolder(tmp_path / "draft"), folder) as process:
        pass
    assert printed(process) == ""


def test_supervisor_of_an_older_server_gets_a_folder_that_has_its_name(tmp_path: Path) -> None:
    assert printed(supervisor(tmp_path / "job")) == "job"
