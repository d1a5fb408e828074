"""Shell completion."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pexpect
import pytest

from smdp_launch.catalog.regions import regions
from smdp_launch.cli.main import COMMANDS
from smdp_launch.errors import ExitCode
from smdp_launch.rules.base.pages import codes, title
from tests.conftest import LAUNCHER, ROOT, Command, clean_environment
from tests.support.terminal import completed

#: Options that start each shell without start-up files.
SHELLS = {
    "bash": ["--norc", "--noprofile", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_key_completes_a_command_in_a_real_shell(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} on this machine")
    (line,) = [one for one in install_lines() if f"completion {shell}" in one]
    environment = clean_environment(
        PATH=f"{LAUNCHER.parent}{os.pathsep}{os.environ['PATH']}", HOME=str(tmp_path), TERM="dumb"
    )
    terminal = pexpect.spawn(
        program, SHELLS[shell], cwd=tmp_path, env=environment, timeout=60, encoding="utf-8", dimensions=(24, 200)
    )
    try:
        terminal.sendline(f"{line}; echo inst''alled")
        terminal.expect_exact("installed")
        terminal.send("smdp-launch val\t")
        terminal.expect_exact("smdp-launch validate ")
        terminal.send("--js\t")
        terminal.expect_exact("--json ")
        terminal.sendline("")
        terminal.expect_exact('"code": "SMDP101"')  # the completed command runs; the folder has no job file
    finally:
        terminal.close(force=True)


def install_lines() -> list[str]:
    shown = subprocess.run([LAUNCHER, "completion", "--help"], capture_output=True, text=True, check=True).stdout
    return [line.strip() for line in shown.splitlines() if "completion" in line and "Usage" not in line]


@pytest.mark.parametrize("shell", SHELLS)
def test_install_line_of_the_help_is_in_the_documentation(shell: str) -> None:
    (line,) = [one for one in install_lines() if f"completion {shell}" in one]
    assert line in (ROOT / "docs" / "how-to" / "completion.md").read_text()


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_prints_only_the_script(shell: str, smdp_launch: Command) -> None:
    ran = smdp_launch("completion", shell)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"_SMDP_LAUNCH_COMPLETE={shell}_complete" in ran.stdout


def test_bash_accepts_the_script(smdp_launch: Command) -> None:
    script = smdp_launch("completion", "bash").stdout
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_unknown_shell_is_a_usage_error(smdp_launch: Command) -> None:
    ran = smdp_launch("completion", "zhs")
    assert ran.returncode == ExitCode.USAGE
    assert "'bash', 'zsh', 'fish'" in ran.stderr


def test_all_commands_are_completed_with_their_summary(job_folder: Path) -> None:
    completions = completed(job_folder, "")
    assert list(completions) == list(COMMANDS)
    assert all(completions.values())


def test_only_job_files_and_saved_plans_are_completed(job_folder: Path) -> None:
    (job_folder / "plan.json").write_text(json.dumps({}))
    (job_folder / "notes.txt").write_text("")
    (job_folder / "jobs").mkdir()
    (job_folder / "jobs" / "big.yml").write_text("")
    assert set(completed(job_folder, "validate", "")) == {"job.yaml", "plan.json"}
    assert set(completed(job_folder, "launch", "j")) == {"job.yaml"}
    assert set(completed(job_folder, "plan", "jobs/b")) == {"jobs/big.yml"}
    assert completed(job_folder, "plan", "nowhere/") == {}


def test_codes_are_completed_with_their_titles(job_folder: Path) -> None:
    assert completed(job_folder, "explain", "") == {one: title(one) for one in codes()}
    assert set(completed(job_folder, "explain", "smdp30")) == {one for one in codes() if one.startswith("SMDP30")}
    assert set(completed(job_folder, "explain", "30")) == {one for one in codes() if one.startswith("SMDP30")}


def test_catalogue_tables_and_values_are_completed(job_folder: Path) -> None:
    assert set(completed(job_folder, "catalog", "")) == {"instances", "frameworks", "images", "prices"}
    assert set(completed(job_folder, "catalog", "images", "--region", "")) == set(regions())
    assert set(completed(job_folder, "catalog", "instances", "--policy", "s")) == {"strict"}
