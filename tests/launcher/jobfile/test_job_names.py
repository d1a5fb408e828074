"""NAME on the command line: a job's whole name, the beginning of only one, or ``latest``; the module as a program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.api import attach
from smdp_launch.errors import ExitCode, Refused
from smdp_launch.jobs.records.history import STATE_FOLDER
from tests.conftest import ROOT, Command, clean_environment

JOBS = ["mnist-20260101000000-aaaa", "bert-20260102000000-bbbb", "mnist-20260103000000-cccc"]
VERBS = ["status", "logs", "follow", "stop", "resume", "download"]


@pytest.fixture
def launched(job_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three jobs that were launched from the current folder."""
    folder = job_folder / STATE_FOLDER
    folder.mkdir()
    lines = [
        {
            "job": name,
            "where": "us-east-1",
            "job_file": "job.yaml",
            "plan_hash": "",
            "time": "2026-01-01T00:00:00+00:00",
        }
        for name in JOBS
    ]
    (folder / "history.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    monkeypatch.chdir(job_folder)
    return JOBS


@pytest.mark.parametrize(
    ("name", "job"),
    [(None, 2), ("latest", 2), ("bert", 1), ("mnist-20260101", 0), ("mnist-20260103000000-cccc", 2)],
)
def test_job_is_found_by_name_unique_prefix_or_latest(launched: list[str], name: str | None, job: int) -> None:
    assert attach(name).name == launched[job]
    assert attach(name).where == "us-east-1"


def test_ambiguous_prefix_lists_matching_jobs(launched: list[str]) -> None:
    with pytest.raises(Refused, match=f"2 jobs begin with mnist: {launched[2]}, {launched[0]}; `latest`"):
        attach("mnist")


@pytest.mark.parametrize("verb", VERBS)
def test_unknown_name_is_refused_without_credentials(smdp_launch: Command, launched: list[str], verb: str) -> None:
    ran = smdp_launch(verb, "nosuch")
    assert ran.returncode == ExitCode.REFUSED
    assert "there is no job nosuch" in ran.stderr
    assert launched[2] in ran.stderr
    assert "credentials" not in ran.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_unknown_name_without_launches_is_refused(smdp_launch: Command, verb: str) -> None:
    ran = smdp_launch(verb, "nosuch")
    assert ran.returncode == ExitCode.REFUSED
    assert "there is no job nosuch: none was launched from this folder" in ran.stderr


def test_a_job_called_latest_is_found_by_its_name(launched: list[str], job_folder: Path) -> None:
    with (job_folder / STATE_FOLDER / "history.jsonl").open("a") as file:
        old = {"where": "local", "job_file": "job.yaml", "plan_hash": "", "time": "2026-01-01T00:00:00+00:00"}
        file.write(json.dumps({"job": "latest", **old}) + "\n" + json.dumps({"job": "newer", **old}) + "\n")
    assert attach("latest").name == "latest"


def test_name_with_region_is_not_looked_up(launched: list[str]) -> None:
    assert attach("mnist", region="eu-west-1").name == "mnist"


def test_module_runs_the_command(job_folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "smdp_launch", "validate"],
        cwd=job_folder,
        env=clean_environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "job.yaml: valid\n")


@pytest.mark.parametrize(
    "arguments", [["validate"], ["plan"], ["launch", "--local"], ["launch"], ["rehearse", "kill"], ["preflight"]]
)
def test_missing_job_file_error_names_init(smdp_launch: Command, job_folder: Path, arguments: list[str]) -> None:
    (job_folder / "job.yaml").unlink()
    ran = smdp_launch(*arguments)
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "there is no file job.yaml" in ran.stderr
    assert "smdp-launch init" in ran.stderr
