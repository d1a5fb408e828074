"""A local run needs local data; other commands do not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import smdp_launch.api  # noqa: F401 - registers the views of notebooks
from smdp_launch.checking.inputs import LocalRequest
from smdp_launch.checking.job import check_job
from smdp_launch.cli.render.diagnostics import diagnostics_text
from smdp_launch.diagnostics import Diagnostic, Diagnostics, Severity
from smdp_launch.errors import ExitCode
from smdp_launch.source.scan import sample_data
from tests.conftest import JOB, Command, write_job

MANY = 5_000
TWENTY = [f"part-{number:02}" for number in range(1, 21)]


def empty(folder: Path) -> None:
    (folder / "away").mkdir()


def unreadable(folder: Path) -> None:
    (folder / "away").mkdir()
    (folder / "away" / "gone").symlink_to("nowhere")


def a_pipe(folder: Path) -> None:
    (folder / "away").mkdir()
    os.mkfifo(folder / "away" / "pipe")


def missing(_folder: Path) -> None:
    pass


@pytest.fixture(params=[missing, empty, unreadable, a_pipe], ids=lambda one: str(one.__name__))
def without_data(request: pytest.FixtureRequest, job_folder: Path) -> Path:
    make: Callable[[Path], None] = request.param
    make(job_folder)
    (job_folder / "job.yaml").write_text(JOB.replace("train: data}", "train: away}"))
    return job_folder


def test_aws_commands_work_without_local_data(without_data: Path, smdp_launch: Command) -> None:
    for command in (["validate"], ["plan"], ["launch", "--dry-run"]):
        ran = smdp_launch(*command)
        assert ran.returncode == ExitCode.OK, (command, ran.stderr)
        assert "note[SMDP40" in ran.stderr
        assert "error" not in ran.stderr
    assert "local data of channel train" in smdp_launch("plan").stdout
    assert json.loads(smdp_launch("validate", "--json").stdout)["sound"] is True


@pytest.mark.parametrize("command", [["launch", "--local"], ["launch", "--local", "--dry-run"], ["rehearse", "kill"]])
def test_local_run_without_data_is_refused(without_data: Path, smdp_launch: Command, command: list[str]) -> None:
    ran = smdp_launch(*command)
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "error[SMDP40" in ran.stderr
    assert not (without_data / ".smdp").exists()


def test_only_local_run_reads_all_data(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    for number in range(MANY):
        (tmp_path / "data" / f"part-{number}").touch()
    glanced, read = check_job(path).facts, check_job(path, LocalRequest()).facts
    assert glanced is not None
    assert read is not None
    assert not glanced.local_data["train"].complete
    assert glanced.local_data["train"].files < MANY / 10
    assert read.local_data["train"].files == MANY


def test_deep_folder_tree_is_not_read_completely(tmp_path: Path) -> None:
    for number in range(1_000):
        (tmp_path / f"class-{number}" / "images").mkdir(parents=True)
    found = sample_data(tmp_path)
    assert (found.complete, found.problem) == (False, None)


def test_folder_cycle_ends_the_check(tmp_path: Path) -> None:
    (tmp_path / "again").symlink_to(tmp_path)
    assert sample_data(tmp_path).exists


def test_single_file_is_data(tmp_path: Path) -> None:
    (tmp_path / "part").write_text("0123456789")
    found = sample_data(tmp_path / "part")
    assert (found.exists, found.files, found.size, found.problem, found.complete) == (True, 1, 10, None, True)


def test_twenty_channels_without_local_data_give_one_note(tmp_path: Path) -> None:
    channels = "\n".join(f"  {name}: {{s3: s3://bucket/{name}}}" for name in TWENTY)
    local = "\n".join(f"    {name}: away/{name}" for name in TWENTY)
    text = JOB.replace('channels:\n  train: {s3: "s3://bucket/train"}', f"channels:\n{channels}")
    text = text.replace("local: {channels: {train: data}}", f"local:\n  channels:\n{local}")
    (one,) = check_job(write_job(tmp_path, text)).diagnostics
    assert (one.severity, len(one.also)) == (Severity.NOTE, 19)
    assert one.span is not None
    assert len({place.line for place in (one.span, *one.also)}) == 20
    assert all(name in one.message for name in TWENTY)


def test_summary_refers_to_an_error_before_warnings() -> None:
    found = [Diagnostic("SMDP312", "unusual", severity=Severity.WARNING), Diagnostic("SMDP301", "wrong")]
    summary = "\n1 error and 1 warning; for details: smdp-launch explain SMDP301"
    assert diagnostics_text(found).plain.endswith(summary)


def test_notes_are_not_counted(tmp_path: Path) -> None:
    text = JOB.replace("train: data}", "train: away}").replace("instance_count: 2", "instance_count: 1")
    found = Diagnostics(check_job(write_job(tmp_path, text)).diagnostics)
    assert [one.severity for one in found] == [Severity.WARNING, Severity.NOTE]
    assert diagnostics_text(found).plain.endswith("\n1 warning; for details: smdp-launch explain SMDP312")
    assert ">1 warning<" in found._repr_html_()
    notes = Diagnostics(one for one in found if one.severity is Severity.NOTE)
    assert diagnostics_text(notes).plain.endswith("\nfor details: smdp-launch explain SMDP404")
    assert "smdp-note" in notes._repr_html_()
