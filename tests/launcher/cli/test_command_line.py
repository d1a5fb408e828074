"""The command line as a user runs it: exit codes, output streams and requirements."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.cli.main import COMMANDS
from smdp_launch.errors import ExitCode
from tests.conftest import JOB, LAUNCHER, ROOT, Command, clean_environment, write_job
from tests.support.job_files.five_errors import FIVE_ERRORS
from tests.support.json_documents import validator
from tests.support.terminal import on_a_terminal


def test_five_errors_give_five_diagnostics_with_their_lines(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(FIVE_ERRORS)
    ran = smdp_launch("validate")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert ran.stdout == ""
    places = [line.split("--> ")[1] for line in ran.stderr.splitlines() if "--> " in line]
    assert places == ["job.yaml:2:1", "job.yaml:4:37", "job.yaml:7:10", "job.yaml:11:18", "job.yaml:13:12"]
    assert ran.stderr.splitlines()[-1].startswith("5 errors")
    assert not (job_folder / ".smdp").exists()


def test_valid_file_is_reported_as_valid(smdp_launch: Command) -> None:
    ran = smdp_launch("validate")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "job.yaml: valid\n", "next: smdp-launch plan\n")


@pytest.mark.parametrize("arguments", [["validate"], ["plan"], ["plan", "--json"], ["launch", "--local"], ["launch"]])
def test_every_command_refuses_an_invalid_file_and_writes_nothing(
    smdp_launch: Command, job_folder: Path, arguments: list[str]
) -> None:
    (job_folder / "job.yaml").write_text(FIVE_ERRORS)
    ran = smdp_launch(*arguments)
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert ran.stderr.count("error[SMDP") == 5
    assert "Traceback" not in ran.stderr
    assert not (job_folder / ".smdp").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["vaildate"],
        ["plan", "--jsn"],
        ["launch", "--hosts", "2"],
        ["launch", "--local", "--hosts", "0"],
        ["launch", "--local", "--data", "train"],
        ["launch", "--local", "--data", "a=b", "--data", "a=c"],
        ["follow", "--timeout", "nan"],
        ["local", "down", "--grace", "nan"],
        ["invoke", "--timeout", "nan", "request.json"],
    ],
)
def test_usage_errors_have_their_own_exit_code(smdp_launch: Command, arguments: list[str]) -> None:
    ran = smdp_launch(*arguments)
    assert ran.returncode == ExitCode.USAGE
    assert ran.stdout == ""
    assert "Error: " in ran.stderr


def test_json_option_prints_only_json_on_standard_output(smdp_launch: Command) -> None:
    plan = json.loads(smdp_launch("plan", "--json").stdout)
    request = json.loads(smdp_launch("plan", "--request").stdout)
    assert plan["plan"] == 2
    assert plan["world_size"] == len(plan["ranks"]) == 16
    assert plan["diagnostics"] == []
    assert set(request) == set(plan["request"])


def test_refused_plan_is_printed_as_json(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(FIVE_ERRORS)
    ran = smdp_launch("plan", "--json")
    document = json.loads(ran.stdout)
    assert document["request"] is None
    assert len(document["diagnostics"]) == 5
    assert {"code", "severity", "message", "span", "text", "help", "edits"} == set(document["diagnostics"][0])


def test_plan_in_a_pipe_has_unwrapped_values(smdp_launch: Command) -> None:
    ran = smdp_launch("launch", "--dry-run")
    assert ran.returncode == 0
    assert "\x1b" not in ran.stdout
    assert "image      123456789012.dkr.ecr.us-east-1.amazonaws.com/smdp-pytorch:2.0.1-cu118\n" in ran.stdout
    assert "algo-2: 8-15" in ran.stdout


def test_launch_on_aws_refuses_placeholders(smdp_launch: Command, job_folder: Path) -> None:
    text = JOB.replace("123456789012", "000000000000").replace("us-east-1", "xx-placeholder-1")
    (job_folder / "job.yaml").write_text(text)
    assert smdp_launch("validate").returncode == 0
    ran = smdp_launch("launch", "--yes")
    assert ran.returncode == ExitCode.REFUSED
    assert ran.stderr.count("error[SMDP801]") == 3
    assert not (job_folder / ".smdp").exists()


def test_launch_on_aws_without_confirmation_is_refused(smdp_launch: Command, job_folder: Path) -> None:
    ran = smdp_launch("launch")
    assert ran.returncode == ExitCode.REFUSED
    assert "--yes" in ran.stderr
    assert not (job_folder / ".smdp").exists()


def test_launch_on_aws_without_credentials_gives_environment_error(smdp_launch: Command, job_folder: Path) -> None:
    environment = clean_environment(HOME=str(job_folder), AWS_EC2_METADATA_DISABLED="true")
    ran = smdp_launch("launch", "--yes", env=environment)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "credentials" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("arguments", ["plan", "plan --json"])
def test_closed_pipe_is_no_error(job_folder: Path, arguments: str) -> None:
    shell = f"{LAUNCHER} {arguments} | head -c 1"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell], cwd=job_folder, capture_output=True, text=True, check=False
    )
    # `next:` is written to stderr unless the reader exited before.
    assert (ran.returncode, [one for one in ran.stderr.splitlines() if not one.startswith("next: ")]) == (0, [])


@pytest.mark.parametrize("arguments", [["validate"], ["plan", "--json"], ["--help"]])
def test_validation_needs_no_network_no_home_and_no_heavy_imports(job_folder: Path, arguments: list[str]) -> None:
    program = """
import json, socket, sys
def refuse(*_, **__):
    raise AssertionError("a socket was opened")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
from smdp_launch.cli import main
try:
    main()
except SystemExit as left:
    heavy = {"boto3", "botocore", "moto", "sagemaker", "torch", "smdp_entrypoint", "smdp_engine"} & set(sys.modules)
    print(json.dumps([left.code, sorted(heavy)]), file=sys.stderr)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=job_folder,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(ran.stderr.splitlines()[-1]) == [0, []]


def test_help_imports_no_heavy_packages(job_folder: Path) -> None:
    program = "import sys; from smdp_launch.cli import main\ntry: main()\nexcept SystemExit: print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program, "--help"], cwd=job_folder, capture_output=True, text=True, check=True
    )
    assert not {"pydantic", "ruamel", "rich"} & {name.split(".")[0] for name in ran.stdout.split()}


@pytest.mark.parametrize("arguments", [["validate"], ["validate", "--json"], ["launch", "--json"]])
def test_unexpected_exception_is_reported_as_a_bug(job_folder: Path, arguments: list[str]) -> None:
    program = """
import smdp_launch.checking.job as job
job.check_job = lambda *_, **__: 1 / 0
from smdp_launch.cli import main
main()
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=job_folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == ExitCode.BUG
    if "--json" in arguments:
        document = json.loads(ran.stdout)
        validator("error").validate(document)
        assert document["exit_code"] == ExitCode.BUG
        assert document["message"] == "a bug in smdp-launch: ZeroDivisionError: division by zero"
        assert (ran.stdout.count("\n") == 1) == (arguments[0] == "launch")
    else:
        assert ran.stdout == ""
    assert "bug in smdp-launch" in ran.stderr
    assert "ZeroDivisionError" in ran.stderr


def test_paths_in_a_job_file_are_relative_to_it(smdp_launch: Command, job_folder: Path) -> None:
    elsewhere = job_folder / "elsewhere"
    elsewhere.mkdir()
    ran = smdp_launch("validate", "../job.yaml", cwd=elsewhere)
    assert ran.returncode == 0


def test_default_job_file_is_in_the_current_folder(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder)
    (job_folder / "job.yaml").rename(job_folder / "other.yaml")
    ran = smdp_launch("validate")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "there is no file job.yaml" in ran.stderr
    assert smdp_launch("validate", "other.yaml").returncode == 0


def test_full_disk_and_deleted_folder_give_environment_error(job_folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [LAUNCHER, "plan"], cwd=job_folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stderr == "smdp-launch: disk full: the output cannot be written\n"
    gone = f"mkdir gone; cd gone; rmdir ../gone; {LAUNCHER} plan {job_folder}/job.yaml"
    ran = subprocess.run(["sh", "-c", gone], cwd=job_folder, capture_output=True, text=True, check=False)
    assert ran.returncode in {ExitCode.OK, ExitCode.ENVIRONMENT}
    assert "bug in smdp-launch" not in ran.stderr


def test_deleted_folder_gives_json_error(job_folder: Path) -> None:
    gone = f"mkdir gone; cd gone; rmdir ../gone; {LAUNCHER} launch --local --dry-run --json {job_folder}/job.yaml"
    ran = subprocess.run(["sh", "-c", gone], cwd=job_folder, capture_output=True, text=True, check=False)
    assert ran.returncode == ExitCode.ENVIRONMENT
    document = json.loads(ran.stdout)
    validator("error").validate(document)
    assert document["exit_code"] == ExitCode.ENVIRONMENT
    assert document["message"] in ran.stderr


def test_control_characters_of_a_job_file_are_escaped(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(JOB.replace("name: small", 'name: "a\\e[31mb"'))
    assert "\x1b" not in smdp_launch("validate").stderr


@pytest.mark.parametrize("columns", [80, 140])
def test_help_lists_every_command_with_its_summary_on_one_line(job_folder: Path, columns: int) -> None:
    shown = on_a_terminal(job_folder, ["--help"], columns)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    width = max(map(len, COMMANDS)) + 2
    for name, entry in COMMANDS.items():
        assert f"  {name:<{width}}{entry.summary}" in lines
    assert max(map(len, lines)) <= columns
    assert "\x1b" in shown
    assert "\x1b" not in on_a_terminal(job_folder, ["--help"], columns, NO_COLOR="1")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_names_its_page(smdp_launch: Command, name: str) -> None:
    ran = smdp_launch(name, "--help")
    pages = COMMANDS[name].page
    assert ran.stdout.endswith(f"\n\n  Documentation: {pages}\n")
    assert all((ROOT / page).is_file() for page in pages.split(", "))


def test_help_prints_each_example_on_its_own_line(smdp_launch: Command) -> None:
    lines = smdp_launch("--help").stdout.splitlines()
    assert any(line.strip().startswith("smdp-launch plan  ") for line in lines)
