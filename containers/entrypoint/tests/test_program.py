from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from entrypoint_support.wheels import make_wheel

from smdp_entrypoint.contract.errors import ProgramError
from smdp_entrypoint.program import find_program

if TYPE_CHECKING:
    from entrypoint_support.host import Host


@pytest.fixture
def code(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    return code


def put(code: Path, *names: str) -> None:
    for name in names:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("#!/bin/sh\n")


def test_each_kind_of_program_has_its_command(code: Path) -> None:
    put(code, "train.py", "sub/train.py", "run.sh", "tool", "requirements.txt")
    assert find_program("train.py", code).argv(["-n", "1"]) == [sys.executable, "train.py", "-n", "1"]
    assert find_program("sub/train.py", code).argv([]) == [sys.executable, "sub/train.py"]
    assert find_program("run.sh", code).argv(["a b"]) == ["./run.sh", "a b"]
    assert find_program("tool", code).argv([]) == ["./tool"]
    assert find_program("train.py", code).requirements() == ["-r", "requirements.txt"]
    assert find_program("run.sh", code).requirements() == []


def test_command_without_interpreter_line_runs_in_the_shell(code: Path) -> None:
    (code / "run.sh").write_text("echo hello\n")
    assert find_program("run.sh", code).argv(["x"]) == ["/bin/sh", "./run.sh", "x"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"#!/bin/sh\r\necho hello\r\n", r"run\.sh has Windows line ends"),
        (b"set -e\r\necho hello\r\n", r"run\.sh has Windows line ends"),
        (b"#!/usr/bin/env python3\r\n", r"run\.sh has Windows line ends"),
        (b"#! /no/such/zsh -e\n", r"run\.sh names the interpreter /no/such/zsh, which this image does not have"),
        (b"#!no-such-file\n", r"run\.sh names the interpreter no-such-file,"),
    ],
)
def test_command_whose_interpreter_does_not_exist_is_refused(code: Path, content: bytes, reason: str) -> None:
    (code / "run.sh").write_bytes(content)
    with pytest.raises(ProgramError, match=reason):
        find_program("run.sh", code).prepare()


@pytest.mark.parametrize("content", [b"", b"#!", b"#!\n", b"#!/bin/sh", b"#! ./own\n", b"\x7fELF\r\n", b"echo hello\n"])
def test_other_first_lines_of_a_command_are_accepted(code: Path, content: bytes) -> None:
    put(code, "own")
    (code / "tool").write_bytes(content)
    find_program("tool", code).prepare()


def test_a_package_is_installed_and_run_as_a_module(code: Path) -> None:
    put(code, "setup.py", "requirements.txt", "pkg/train.py")
    program = find_program("pkg/train.py", code)
    assert program.argv([]) == [sys.executable, "-m", "pkg.train"]
    assert program.requirements() == [".", "-r", "requirements.txt"]
    assert find_program("run.py", code).argv([]) == [sys.executable, "-m", "run"]


def test_a_pyproject_that_only_configures_tools_does_not_make_a_script_a_package(code: Path) -> None:
    put(code, "pyproject.toml", "train.py")
    assert find_program("train.py", code).kind == "script"
    assert find_program("pkg.train", code).argv([]) == [sys.executable, "-m", "pkg.train"]


@pytest.mark.parametrize("name", ["../train.py", "a/../../train.py", "/etc/passwd", "-c", "a\nb.py", "missing.py"])
def test_a_program_outside_the_code_or_missing_is_refused(code: Path, name: str) -> None:
    put(code, "other.py", "lib/x.py")
    with pytest.raises(ProgramError):
        find_program(name, code)


def test_missing_program_error_lists_the_code_folder(code: Path) -> None:
    put(code, "other.py", "lib/x.py")
    with pytest.raises(ProgramError, match=r"'train\.py' is not in .*, which contains lib/, other\.py\."):
        find_program("train.py", code)


def test_a_link_out_of_the_code_is_refused(code: Path) -> None:
    (code.parent / "elsewhere.py").write_text("")
    (code / "train.py").symlink_to("../elsewhere.py")
    with pytest.raises(ProgramError, match="which is outside"):
        find_program("train.py", code)


@pytest.mark.parametrize("name", [None, ""])
def test_job_without_program_error_names_the_hyperparameter(code: Path, name: str | None) -> None:
    with pytest.raises(ProgramError, match="sagemaker_program"):
        find_program(name, code)


def test_no_shell_interprets_the_arguments_of_a_shell_program(host: Host) -> None:
    host.job('#!/bin/sh\nprintf "%s|" "$@"\n', program="run.sh", text="$HOME; `ls` 'x'")
    assert host.run() == 0
    assert host.of_rank(0) == ["--text|$HOME; `ls` 'x'|"]


def test_requirements_are_installed_before_the_script_runs(host: Host, tmp_path: Path) -> None:
    host.job("import sys; sys.path.append(sys.argv[2]); import smdp_demo; print(smdp_demo.WORD)", site=str(tmp_path))
    host.code("requirements.txt", "./" + make_wheel(host.root / "code"))
    assert host.run(PIP_NO_INDEX="1", PIP_TARGET=str(tmp_path), PIP_NO_CACHE_DIR="1") == 0
    assert host.of_rank(0) == ["installed"]
    assert "[algo-1] installing with pip: -r requirements.txt" in host.lines


def test_failed_requirements_fail_the_job_with_pips_message(host: Host) -> None:
    host.job("print('never')")
    host.code("requirements.txt", "smdp-no-such-distribution==1.0")
    assert host.run(PIP_NO_INDEX="1") == 1
    assert host.failure.startswith("pip install -r requirements.txt failed with exit code 1.")
    assert "No matching distribution found for smdp-no-such-distribution==1.0" in host.failure
    assert host.of_rank(0) == []


def test_a_stop_signal_during_pip_ends_it(host: Host) -> None:
    host.job("print('never')")
    host.code("requirements.txt", "anything")
    # The code folder is pip's working folder, so this module replaces pip and takes long.
    host.code("pip/__init__.py", "")
    host.code("pip/__main__.py", "import time; print('downloading', flush=True); time.sleep(600)")
    host.start()
    host.wait_for_line("downloading")
    host.signal()
    assert host.wait() == 143
    assert host.of_rank(0) == []
