"""`smdp-launch local`: any AWS client can use the local cloud, and `launch --local` uses the same one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.errors import ExitCode
from tests.conftest import LAUNCHER, Command, clean_environment, write_job
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.json_documents import the_document
from tests.support.terminal import on_a_terminal

RUN = ["launch", "--local", "--hosts", "1", "--workers-per-host", "1"]


@pytest.fixture
def home(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder. A process left behind there or in the job's folder fails the test."""
    monkeypatch.setenv("HOME", str(job_folder))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    yield job_folder
    assert_nothing_runs(str(job_folder))


def shell(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{LAUNCHER.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=clean_environment(PATH=path, **variables),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


LISTS = """python -c "
import boto3
s3 = boto3.client('s3')
s3.create_bucket(Bucket='mine')
print(boto3.client('sts').meta.endpoint_url, sorted(one['Name'] for one in s3.list_buckets()['Buckets']))
"
"""


@pytest.mark.parametrize("user", ["", " --user"])
def test_exports_make_boto3_use_the_local_cloud(home: Path, user: str) -> None:
    script = f'eval "$(smdp-launch local up{user})"\n{LISTS}smdp-launch local down{user}\n'
    ran = shell(script, home, AWS_PROFILE="unknown", AWS_ENDPOINT_URL_S3="http://127.0.0.1:1")
    assert ran.returncode == 0, ran.stderr
    assert re.fullmatch(
        r"http://127\.0\.0\.1:\d+ \['mine', 'sagemaker-us-east-1-000000000000'\]", ran.stdout.splitlines()[0]
    )
    state = home / (".local/state/smdp-launch/local" if user else ".smdp/local")
    assert (state / "s3" / "mine").is_dir()


def test_down_prints_how_to_unset_the_exports(home: Path) -> None:
    up = 'eval "$(smdp-launch local up)"'
    ran = shell(f"{up}\nsmdp-launch local down\nenv -u SMDP_LOCAL_STATE smdp-launch local down\n", home)
    unset_line, up_again = ran.stderr.splitlines()[-2:]
    assert up_again == "next: smdp-launch local up"
    unset = re.fullmatch(r"next: (unset .*) \(this shell still uses the stopped local cloud\)", unset_line)
    assert unset is not None
    remaining = shell(f"{up}\nsmdp-launch local down\n{unset[1]}\nenv\n", home).stdout
    assert not re.findall(r"^(?:AWS|SAGEMAKER|SMDP)_.*", remaining, re.MULTILINE)


def test_exports_apply_to_local_runs_of_every_folder(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_job(other)
    run = " ".join(["smdp-launch", *RUN])
    script = f'eval "$(smdp-launch local up --user)"\ncd {other}\n{run}\nsmdp-launch local down\n'
    ran = shell(script, home)
    assert ran.returncode == 0, ran.stderr
    assert not (other / ".smdp" / "local").exists()
    assert len(list((home / ".local/state/smdp-launch/local/jobs").iterdir())) == 1


def test_local_run_uses_the_running_local_cloud(smdp_launch: Command, home: Path) -> None:
    up = json.loads(smdp_launch("local", "up", "--json").stdout)
    ran = smdp_launch(*RUN)
    assert ran.returncode == ExitCode.OK, ran.stderr
    after = the_document(smdp_launch("local", "status", "--json"), "local")
    assert {**up, "ended": 1, "environment": {}, "warnings": []} == after
    down: dict[str, Any] = the_document(smdp_launch("local", "down", "--json"), "local")
    assert (down["up"], down["environment"], down["ended"]) == (False, {}, 1)


def test_only_up_prints_the_keys(smdp_launch: Command, home: Path) -> None:
    exports = json.loads(smdp_launch("local", "up", "--json").stdout)["environment"]
    others = [smdp_launch("local", *one) for one in (["status", "--json"], ["status"], ["down", "--json"])]
    for key in (exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"]):
        assert not [one.args for one in others if key in one.stdout + one.stderr]


def test_second_up_prints_the_same_exports(smdp_launch: Command, home: Path) -> None:
    first = smdp_launch("local", "up")
    assert smdp_launch("local", "up").stdout == first.stdout
    assert all(re.fullmatch(r"(export \w+=\S+|unset \w+)", line) for line in first.stdout.splitlines())
    assert smdp_launch("local", "down").stdout == "the local cloud is stopped\n"
    assert smdp_launch("local", "down").stdout == "the local cloud was not running\n"


def with_aws(folder: Path, version: str) -> dict[str, str]:
    """A PATH whose first `aws` prints the version."""
    program = folder / "bin" / "aws"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("version", "warned"),
    [
        ("aws-cli/2.12.7 Python/3.11.4 Linux/6.1 exe/x86_64.debian.12", "is version 2.12.7"),
        ("aws-cli/2.13.0 Python/3.11.4 Linux/6.1 exe/x86_64.debian.12", None),
        ("aws-cli/1.27.100 Python/3.11.2 Linux/6.1 botocore/1.29.100", "is version 1.27.100"),
        ("aws-cli/1.29.0 Python/3.11.2 Linux/6.1 botocore/1.31.0", None),
        ("aws-cli/3.0.0", None),
        ("no version", "prints no version"),
    ],
)
def test_up_warns_of_an_aws_cli_that_ignores_the_endpoint(
    smdp_launch: Command, home: Path, version: str, warned: str | None
) -> None:
    environment = clean_environment(HOME=str(home), **with_aws(home, version))
    ran = smdp_launch("local", "up", env=environment)
    warnings = re.findall(r"^warning: (.*)$", ran.stderr, re.MULTILINE)
    assert "warning" not in ran.stdout
    document = the_document(smdp_launch("local", "up", "--json", env=environment), "local")
    smdp_launch("local", "down")
    assert document["warnings"] == warnings
    assert len(warnings) == (warned is not None)
    if warned is not None:
        assert f"{home / 'bin' / 'aws'}" in warnings[0]
        assert warned in warnings[0]
        assert "AWS CLI 1 before 1.29 and 2 before 2.13 ignore AWS_ENDPOINT_URL" in warnings[0]


@pytest.mark.parametrize("where", ["file", "environment"])
def test_settings_that_ignore_the_endpoint_are_overridden_and_reported(home: Path, where: str) -> None:
    variables = {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    if where == "file":
        (home / ".aws").mkdir()
        (home / ".aws/config").write_text("[default]\nignore_configured_endpoint_urls = true\n")
        variables = {}
    script = f'eval "$(smdp-launch local up)"\n{LISTS}smdp-launch local down\n'
    with_aws(home, "aws-cli/2.15.0")
    ran = shell(f'PATH="{home}/bin:$PATH"\n{script}', home, **variables)
    assert ran.returncode == 0, ran.stderr
    assert re.match(r"http://127\.0\.0\.1:\d+ ", ran.stdout)
    (warning,) = re.findall(r"^warning: (.*)$", ran.stderr, re.MULTILINE)
    assert (str(home / ".aws/config") if where == "file" else "the environment has") in warning


def test_up_reports_calls_that_it_cannot_redirect(smdp_launch: Command, home: Path) -> None:
    ran = smdp_launch("local", "up")
    smdp_launch("local", "down")
    assert "not redirected: get_execution_role() and Session.account_id()" in ran.stderr


def test_unusable_state_folder_is_named_in_the_error(smdp_launch: Command, home: Path) -> None:
    (home / "file").touch()
    ran = smdp_launch("local", "up", env=clean_environment(SMDP_LOCAL_STATE=str(home / "file" / "state")))
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "file/state" in ran.stderr


def test_unusable_folder_of_the_user_is_chosen_by_another_variable(smdp_launch: Command, home: Path) -> None:
    (home / "file").touch()
    ran = smdp_launch("local", "up", "--user", env=clean_environment(XDG_STATE_HOME=str(home / "file")))
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "SMDP_LOCAL_STATE" not in ran.stderr
    assert ran.stderr.endswith(". To use another folder, set XDG_STATE_HOME, or omit --user.\n")


@pytest.mark.parametrize("verb", ["status", "down"])
def test_only_up_creates_the_state_folder(smdp_launch: Command, home: Path, verb: str) -> None:
    ran = smdp_launch("local", verb)
    assert (ran.returncode, ran.stderr) == (ExitCode.OK, "next: smdp-launch local up\n")
    assert not (home / ".smdp").exists()


@pytest.mark.parametrize("arguments", [("local", "status"), RUN, ("rehearse", "kill")])
def test_unknown_home_folder_is_named_in_the_error(
    smdp_launch: Command, home: Path, arguments: tuple[str, ...]
) -> None:
    ran = smdp_launch(*arguments, env=clean_environment(SMDP_LOCAL_STATE="~unknown-user/state"))
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert "SMDP_LOCAL_STATE is ~unknown-user/state, and there is no such user" in ran.stderr


@pytest.mark.runs
def test_job_is_found_in_the_local_cloud_of_its_launch(smdp_launch: Command, home: Path) -> None:
    elsewhere = home / "elsewhere"
    assert smdp_launch(*RUN, env=clean_environment(SMDP_LOCAL_STATE=str(elsewhere))).returncode == ExitCode.OK
    status = the_document(smdp_launch("status", "--json"), "status")
    assert status["training_job_status"] == "Completed"
    assert not (home / ".smdp" / "local").exists()
    shutil.rmtree(elsewhere)
    ran = smdp_launch("status")
    assert ran.returncode == ExitCode.ENVIRONMENT
    assert f"there is no folder {elsewhere}" in ran.stderr.replace("\n", " ")
    assert not elsewhere.exists()


@pytest.mark.runs
def test_list_queries_the_local_cloud_of_each_job(smdp_launch: Command, home: Path) -> None:
    for name in ("one", "two"):
        ran = smdp_launch(*RUN, "--detach", env=clean_environment(SMDP_LOCAL_STATE=str(home / name)))
        assert ran.returncode == ExitCode.OK
    listed = the_document(smdp_launch("list", "--json"), "list")["jobs"]
    assert [one["training_job_status"] in ("InProgress", "Completed") for one in listed] == [True, True]
    assert not (home / ".smdp" / "local").exists()
    for one in listed:
        assert smdp_launch("follow", one["job"]).returncode == ExitCode.OK


@pytest.mark.runs
def test_moved_folder_keeps_its_jobs(smdp_launch: Command, home: Path) -> None:
    assert smdp_launch(*RUN).returncode == ExitCode.OK
    moved = home.rename(home.with_name("moved"))
    status = the_document(smdp_launch("status", "--json", cwd=moved), "status")
    moved.rename(home)
    assert status["training_job_status"] == "Completed"


@pytest.mark.parametrize("columns", [80, 140])
def test_local_status_fits_the_terminal(smdp_launch: Command, home: Path, columns: int) -> None:
    smdp_launch("local", "up")
    try:
        shown = on_a_terminal(home, ["local", "status"], columns, NO_COLOR="1")
    finally:
        smdp_launch("local", "down")
    assert re.fullmatch(
        r"local cloud  running until `local down`\n"
        r"address  http://127\.0\.0\.1:\d+\nprocess  \d+\nstate    \.smdp/local\n"
        r"running  no job\nended    0 jobs\nnext: smdp-launch local down\n",
        shown,
    )
    assert all(len(line) <= columns for line in shown.splitlines())
