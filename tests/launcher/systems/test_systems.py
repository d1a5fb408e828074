"""What differs between systems: locks, processors, command lines, paths on other drives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smdp_launch import file_lock, systems
from smdp_launch.draft import draft
from smdp_launch.errors import ExitCode
from smdp_launch.file_lock import LockTimeout, locked
from tests.conftest import JOB, Command, write_job


@pytest.mark.parametrize("has_flock", [True, False], ids=["flock", "a lock beside the file"])
def test_a_lock_excludes_every_other_one_until_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_flock: bool
) -> None:
    pytest.importorskip("filelock")
    monkeypatch.setattr(file_lock, "HAS_FLOCK", has_flock)
    path = tmp_path / "file"
    with path.open("ab", buffering=0) as first, path.open("ab", buffering=0) as second:
        with locked(first.fileno(), path):
            first.write(b"first")
            with pytest.raises(LockTimeout), locked(second.fileno(), path, 0.05):
                second.write(b"never")
        with locked(second.fileno(), path):
            second.write(b" second")
    assert path.read_bytes() == b"first second"


@pytest.mark.parametrize("has_flock", [True, False])
def test_an_error_releases_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_flock: bool) -> None:
    pytest.importorskip("filelock")
    monkeypatch.setattr(file_lock, "HAS_FLOCK", has_flock)
    path = tmp_path / "file"
    with path.open("ab") as file:
        with pytest.raises(ValueError, match="inside"), locked(file.fileno(), path):
            raise ValueError("inside")
        with locked(file.fileno(), path):
            pass


def test_processors_without_a_limit_are_all_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert systems.usable_processors() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert systems.usable_processors() == os.cpu_count()


def test_a_suggested_command_has_the_quotes_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["smdp-launch", "plan", "my job.yaml"]
    assert systems.command_line(words) == "smdp-launch plan 'my job.yaml'"
    monkeypatch.setattr(systems, "IS_WINDOWS", True)
    assert systems.command_line(words) == 'smdp-launch plan "my job.yaml"'


def test_a_folder_on_another_drive_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    assert draft.relative(tmp_path / "src", tmp_path) == "src"

    def on_another_drive(*_: object) -> str:
        raise ValueError("path is on mount 'D:', start on mount 'C:'")  # as ntpath.relpath

    monkeypatch.setattr(os.path, "relpath", on_another_drive)
    assert draft.relative(tmp_path / "src", tmp_path) == (tmp_path / "src").as_posix()


def test_a_source_with_backslashes_is_fixed(job_folder: Path, smdp_launch: Command) -> None:
    write_job(job_folder, JOB.replace("source: src", r"source: .\src"))
    ran = smdp_launch("validate", "--fix", "--yes")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert r"+  source: ./src" in ran.stdout
    assert (job_folder / "job.yaml").read_text() == JOB.replace("source: src", "source: ./src")


def test_an_entry_with_backslashes_names_the_one_with_slashes(job_folder: Path, smdp_launch: Command) -> None:
    (job_folder / "src" / "deep").mkdir()
    (job_folder / "src" / "train.py").rename(job_folder / "src" / "deep" / "train.py")
    write_job(job_folder, JOB.replace("entry: train.py", r"entry: deep\train.py"))
    (job_folder / "src" / "train.py").unlink()
    ran = smdp_launch("validate")
    assert "did you mean deep/train.py?" in ran.stderr
