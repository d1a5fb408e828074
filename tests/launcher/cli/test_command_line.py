"""The command as a person runs it: exit codes, what goes to which stream, and what it may not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import JOB, LAUNCHER, Command, clean_environment, write_job
from tests.launcher.cli.test_json_documents import validator

FIVE_MISTAKES = (
    JOB.replace("name: small", "nme: small")
    .replace('version: "2.0.1"', "version: 2.0")
    .replace("entry: train.py", "entry: trian.py")
    .replace("ml.p4d.24xlarge", "ml.p3.24xlarge")
    .replace("max_run: 600", "max_run: long")
)


def test_five_mistakes_are_five_diagnostics_at_their_own_lines(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(FIVE_MISTAKES)
    ran = smdp_launch("validate")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert ran.stdout == ""
    places = [line.split("--> ")[1] for line in ran.stderr.splitlines() if "--> " in line]
    assert places == ["job.yaml:2:1", "job.yaml:4:37", "job.yaml:7:10", "job.yaml:11:18", "job.yaml:13:12"]
    assert ran.stderr.splitlines()[-1].startswith("5 errors")
    assert not (job_folder / ".smdp").exists()


def test_a_sound_file_is_said_to_be_sound(smdp_launch: Command) -> None:
    ran = smdp_launch("validate")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "job.yaml: sound\n", "next: smdp-launch plan\n")


@pytest.mark.parametrize("arguments", [["validate"], ["plan"], ["plan", "--json"], ["launch", "--local"], ["launch"]])
def test_a_bad_file_is_refused_by_every_command_and_leaves_nothing(
    smdp_launch: Command, job_folder: Path, arguments: list[str]
) -> None:
    (job_folder / "job.yaml").write_text(FIVE_MISTAKES)
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
    ],
)
def test_usage_errors_have_their_own_exit_code(smdp_launch: Command, arguments: list[str]) -> None:
    ran = smdp_launch(*arguments)
    assert ran.returncode == ExitCode.USAGE
    assert ran.stdout == ""
    assert "Error: " in ran.stderr


def test_standard_output_is_the_document_alone(smdp_launch: Command) -> None:
    plan = json.loads(smdp_launch("plan", "--json").stdout)
    request = json.loads(smdp_launch("plan", "--request").stdout)
    assert plan["plan"] == 2
    assert plan["world_size"] == len(plan["ranks"]) == 16
    assert plan["diagnostics"] == []
    assert set(request) == set(plan["request"])


def test_a_refused_plan_is_json_too(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(FIVE_MISTAKES)
    ran = smdp_launch("plan", "--json")
    document = json.loads(ran.stdout)
    assert document["request"] is None
    assert len(document["diagnostics"]) == 5
    assert {"code", "severity", "message", "span", "text", "help", "edits"} == set(document["diagnostics"][0])


def test_the_human_plan_keeps_values_whole_when_it_is_piped(smdp_launch: Command) -> None:
    ran = smdp_launch("launch", "--dry-run")
    assert ran.returncode == 0
    assert "\x1b" not in ran.stdout
    assert "image      123456789012.dkr.ecr.us-east-1.amazonaws.com/smdp-pytorch:2.0.1-cu118\n" in ran.stdout
    assert "algo-2: 8-15" in ran.stdout


def test_a_launch_on_aws_refuses_placeholders(smdp_launch: Command, job_folder: Path) -> None:
    text = JOB.replace("123456789012", "000000000000").replace("us-east-1", "xx-placeholder-1")
    (job_folder / "job.yaml").write_text(text)
    assert smdp_launch("validate").returncode == 0
    ran = smdp_launch("launch", "--yes")
    assert ran.returncode == ExitCode.REFUSED
    assert ran.stderr.count("error[SMDP801]") == 3
    assert not (job_folder / ".smdp").exists()


def test_a_launch_on_aws_does_not_start_unasked(smdp_launch: Command, job_folder: Path) -> None:
    ran = smdp_launch("launch")
    assert ran.returncode == ExitCode.REFUSED
    assert "--yes" in ran.stderr
    assert not (job_folder / ".smdp").exists()


def test_a_launch_on_aws_without_credentials_says_so(smdp_launch: Command, job_folder: Path) -> None:
    environment = clean_environment(HOME=str(job_folder), AWS_EC2_METADATA_DISABLED="true")
    ran = smdp_launch("launch", "--yes", env=environment)
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "credentials" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_reader_that_leaves_is_no_error(job_folder: Path) -> None:
    shell = f"{LAUNCHER} plan --json | head -c 1"
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell], cwd=job_folder, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["validate"], ["plan", "--json"], ["--help"]])
def test_checking_needs_no_network_no_home_and_no_heavy_imports(job_folder: Path, arguments: list[str]) -> None:
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


def test_help_and_version_are_quick_to_import(job_folder: Path) -> None:
    program = "import sys; from smdp_launch.cli import main\ntry: main()\nexcept SystemExit: print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program, "--help"], cwd=job_folder, capture_output=True, text=True, check=True
    )
    assert not {"pydantic", "ruamel", "rich"} & {name.split(".")[0] for name in ran.stdout.split()}


@pytest.mark.parametrize("arguments", [["validate"], ["validate", "--json"], ["launch", "--json"]])
def test_an_unforeseen_exception_is_our_bug(job_folder: Path, arguments: list[str]) -> None:
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
        assert document["message"] == "a mistake in smdp-launch: ZeroDivisionError: division by zero"
        assert (ran.stdout.count("\n") == 1) == (arguments[0] == "launch")
    else:
        assert ran.stdout == ""
    assert "mistake in smdp-launch" in ran.stderr
    assert "ZeroDivisionError" in ran.stderr


def test_paths_in_a_job_file_are_relative_to_it(smdp_launch: Command, job_folder: Path) -> None:
    elsewhere = job_folder / "elsewhere"
    elsewhere.mkdir()
    ran = smdp_launch("validate", "../job.yaml", cwd=elsewhere)
    assert ran.returncode == 0


def test_the_job_file_is_found_in_the_current_folder(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder)
    (job_folder / "job.yaml").rename(job_folder / "other.yaml")
    ran = smdp_launch("validate")
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "there is no file job.yaml" in ran.stderr
    assert smdp_launch("validate", "other.yaml").returncode == 0


def test_a_full_disk_and_a_vanished_folder_are_no_mistakes_of_ours(job_folder: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [LAUNCHER, "plan"], cwd=job_folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert ran.stderr == "smdp-launch: disk full: the output cannot be written\n"
    gone = f"mkdir gone; cd gone; rmdir ../gone; {LAUNCHER} plan {job_folder}/job.yaml"
    ran = subprocess.run(["sh", "-c", gone], cwd=job_folder, capture_output=True, text=True, check=False)
    assert ran.returncode in {ExitCode.OK, ExitCode.ENVIRONMENT}
    assert "mistake in smdp-launch" not in ran.stderr


def test_a_folder_that_is_gone_is_told_to_a_program_too(job_folder: Path) -> None:
    gone = f"mkdir gone; cd gone; rmdir ../gone; {LAUNCHER} launch --local --dry-run --json {job_folder}/job.yaml"
    ran = subprocess.run(["sh", "-c", gone], cwd=job_folder, capture_output=True, text=True, check=False)
    assert ran.returncode == ExitCode.ENVIRONMENT
    document = json.loads(ran.stdout)
    validator("error").validate(document)
    assert document["exit_code"] == ExitCode.ENVIRONMENT
    assert document["message"] in ran.stderr


def test_a_reader_that_goes_away_is_no_mistake(job_folder: Path) -> None:
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{LAUNCHER} plan | head -c 1"],
        cwd=job_folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_control_characters_of_a_job_file_are_shown_not_obeyed(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(JOB.replace("name: small", 'name: "a\\e[31mb"'))
    assert "\x1b" not in smdp_launch("validate").stderr


def test_help_keeps_its_examples_on_lines_of_their_own(smdp_launch: Command) -> None:
    lines = smdp_launch("--help").stdout.splitlines()
    assert any(line.strip().startswith("smdp-launch plan job.yaml  ") for line in lines)
