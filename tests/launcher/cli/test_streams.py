"""Output whose reader has exited, which is closed, or whose encoding lacks characters, and a
deleted current folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import JOB, LAUNCHER, clean_environment, write_job


def shell(folder: Path, script: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    path = f"{LAUNCHER.parent}{os.pathsep}{os.environ['PATH']}"
    environment = clean_environment(PATH=path, **variables)
    command = ["bash", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=120)


def with_exited_reader(folder: Path, *arguments: str, both: bool = False) -> tuple[int, str]:
    """The exit code and the standard error of the command, whose output no process reads."""
    read, write = os.pipe()
    os.close(read)
    try:
        ran = subprocess.run(
            [LAUNCHER, *arguments],
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=write if both else subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        os.close(write)
    return ran.returncode, ran.stderr or ""


#: The catalogue is longer than the buffer of a pipe.
SHOWS = [["--help"], ["explain", "SMDP301"], ["catalog", "instances", "--json"], ["list", "--json"], ["list"]]


@pytest.mark.parametrize("arguments", SHOWS, ids=" ".join)
def test_command_whose_reader_has_exited_ends_without_an_error(tmp_path: Path, arguments: list[str]) -> None:
    code, err = with_exited_reader(tmp_path, *arguments)
    assert (code, [one for one in err.splitlines() if not one.startswith("next: ")]) == (ExitCode.OK, [])


@pytest.mark.parametrize("both", [False, True], ids=["output", "output and errors"])
def test_error_keeps_its_exit_code_if_the_reader_has_exited(tmp_path: Path, both: bool) -> None:
    code, err = with_exited_reader(tmp_path, "status", "unknown", "--json", both=both)
    assert code == ExitCode.REFUSED
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("launch --local --dry-run", ExitCode.READER_EXITED),
        ("resume unknown --json", ExitCode.REFUSED),
        ("launch --help", ExitCode.OK),
        ("plan", ExitCode.OK),
    ],
)
def test_only_commands_that_print_succeed_without_a_reader(job_folder: Path, arguments: str, code: ExitCode) -> None:
    assert with_exited_reader(job_folder, *arguments.split())[0] == code


def test_closed_pipe_of_another_process_is_an_error(tmp_path: Path) -> None:
    """Not the end of the reader of the output."""
    program = """
import os, sys
from smdp_launch.cli.commands import schema
from smdp_launch.cli.main import main

def write_into_closed_pipe(**options):
    read, write = os.pipe()
    os.close(read)
    os.write(write, b"x")

schema.command.callback = write_into_closed_pipe
sys.argv = ["smdp-launch", "schema"]
main()
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=tmp_path, env=clean_environment(), capture_output=True, check=False, timeout=120)
    assert ran.returncode == ExitCode.BUG
    assert b"BrokenPipeError" in ran.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("launch --local --dry-run --json --hosts 1 --workers-per-host 1", ExitCode.OK),
        ("status unknown --json", ExitCode.REFUSED),
        ("status --unknown --json", ExitCode.USAGE),
    ],
)
def test_command_continues_if_the_reader_of_its_errors_has_exited(
    job_folder: Path, arguments: str, code: ExitCode, unbuffered: str
) -> None:
    write_job(job_folder, JOB.replace('channels:\n  train: {s3: "s3://bucket/train"}\n', "").partition("local:")[0])
    variables = {"PYTHONUNBUFFERED": unbuffered} if unbuffered else {}
    expected = shell(job_folder, f"smdp-launch {arguments}", **variables)
    assert (expected.returncode, expected.stderr != b"") == (code, True)
    read, write = os.pipe()
    os.close(read)
    environment = clean_environment(**variables)
    command = [LAUNCHER, *arguments.split()]
    with open(write, "wb") as errors:  # noqa: PTH123 - a descriptor
        ran = subprocess.run(
            command, cwd=job_folder, env=environment, stdout=subprocess.PIPE, stderr=errors, check=False, timeout=120
        )
    assert ran.returncode == code
    document = json.loads(ran.stdout)
    assert document.keys() == json.loads(expected.stdout).keys()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [("validate", ExitCode.OK), ("explain SMDP301", ExitCode.OK), ("vaildate", ExitCode.USAGE)],
)
def test_closed_streams_change_no_exit_code(job_folder: Path, closed: str, arguments: str, code: ExitCode) -> None:
    ran = shell(job_folder, f"smdp-launch {arguments} {closed}")
    assert ran.returncode == code
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize("arguments", ["status", "list", "list --json", "cost --offline", "endpoints", "follow name"])
def test_command_in_a_deleted_folder_names_the_cause(tmp_path: Path, arguments: str) -> None:
    """Not that no job was launched from the folder."""
    (tmp_path / "gone").mkdir()
    ran = shell(tmp_path, f"cd gone && rmdir ../gone && smdp-launch {arguments}")
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stderr == b"smdp-launch: the current directory does not exist any more; change to another\n"


def test_characters_that_the_c_locale_lacks_are_escaped(job_folder: Path) -> None:
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    write_job(job_folder, f"{JOB}tags: {{team: Prüfung}}\n")
    ran = shell(job_folder, "smdp-launch plan --origins", **variables)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False)
    assert b"Pr\\xfcfung" in ran.stdout
