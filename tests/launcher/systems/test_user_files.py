"""Files that commands write for the user are whole, or stay as they were, also on a full disk."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from smdp_launch.cli.render.job.report import require_writable
from smdp_launch.draft.user_files import create_file, write_file
from smdp_launch.errors import EnvironmentProblem, ExitCode
from tests.conftest import JOB, Command, command_in, write_job
from tests.launcher.planning.scaling import SMALL
from tests.support.small_disk import SmallDisk, mounted

SCRIPT = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk") as small:
        yield small


@pytest.fixture
def smdp_launch(disk: SmallDisk) -> Command:
    return command_in(disk.folder)


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.name not in (".smdp", "filler"))


@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        ("plan.json", ["plan", "--out", "plan.json"]),
        ("scale.svg", ["scale", *SMALL, "--svg", "scale.svg"]),
        ("schema.json", ["schema", "--output", "schema.json"]),
        ("step.json", ["export", "--to", "pipeline", "--output", "step.json"]),
        ("new.yaml", ["init", "--output", "new.yaml", "--force"]),
    ],
)
def test_full_disk_leaves_the_old_file_or_none(
    disk: SmallDisk, smdp_launch: Command, file: str, arguments: list[str]
) -> None:
    write_job(disk.folder, JOB, SCRIPT)
    before = names(disk.folder)
    disk.fill()
    for old in (None, "old"):
        if old is not None:
            disk.free()
            (disk.folder / file).write_text(old)
            disk.fill()
        ran = smdp_launch(*arguments)
        assert ran.returncode == ExitCode.ENVIRONMENT, ran.stderr
        assert f"disk full in {disk.folder}" in ran.stderr
        if old is not None:
            assert (disk.folder / file).read_text() == old
        assert names(disk.folder) == sorted({*before, *([file] if old is not None else [])})


@pytest.mark.parametrize("arguments", [["--template", "mnist"], []])
def test_init_succeeds_after_space_is_freed(disk: SmallDisk, smdp_launch: Command, arguments: list[str]) -> None:
    if not arguments:
        write_job(disk.folder, JOB, SCRIPT).unlink()
    before = names(disk.folder)
    disk.fill()
    failed = smdp_launch("init", *arguments)
    assert failed.returncode == ExitCode.ENVIRONMENT
    assert f"disk full in {disk.folder}" in failed.stderr
    assert names(disk.folder) == before
    disk.free()
    ran = smdp_launch("init", *arguments)
    assert ran.returncode == ExitCode.OK, ran.stderr


def test_failed_template_keeps_the_files_of_the_user(disk: SmallDisk, smdp_launch: Command) -> None:
    (disk.folder / "src").mkdir()
    for name in ("mnist_ddp.py", "mine.py"):
        (disk.folder / "src" / name).write_text("mine")
    disk.fill()
    ran = smdp_launch("init", "--template", "mnist", "--force")
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert {one.name: one.read_text() for one in (disk.folder / "src").iterdir()} == {
        "mnist_ddp.py": "mine",
        "mine.py": "mine",
    }


def test_replaced_file_keeps_its_link_and_gains_no_permission(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to("real")
    write_file(link, "new")
    assert (link.is_symlink(), real.read_text(), stat.S_IMODE(real.stat().st_mode)) == (True, "new", 0o600)
    assert names(tmp_path) == ["link", "real"]


def test_file_is_written_in_a_folder_of_another_user() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:  # the folders above `tmp_path` are closed to other users
        folder, file = Path(name), Path(name) / "file"
        file.write_text("the old text")
        folder.chmod(0o555)
        if user == 0:
            os.chown(file, 65534, -1)
            os.seteuid(65534)
        try:
            write_file(file, "new", mode=0o600)
            require_writable(file)
            with pytest.raises(EnvironmentProblem, match="cannot be written: Permission denied"):
                write_file(folder / "other", "new")
        finally:
            os.seteuid(user)
            folder.chmod(0o755)
        assert (file.read_text(), stat.S_IMODE(file.stat().st_mode), names(folder)) == ("new", 0o600, ["file"])


def test_mounted_file_is_written(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("the old text")
    target.touch()
    if subprocess.run(["mount", "--bind", source, target], check=False, capture_output=True).returncode != 0:
        pytest.skip("no file can be mounted")
    try:
        write_file(target, "new")
    finally:
        subprocess.run(["umount", target], check=True)
    assert (source.read_text(), names(tmp_path)) == ("new", ["source", "target"])


def test_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_file(pipe, "text")
        assert os.read(reader, 10) == b"text"
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    finally:
        os.close(reader)


def test_folder_is_no_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot be written: Is a directory"):
        write_file(tmp_path, "text")


def test_existing_file_is_not_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "old"
