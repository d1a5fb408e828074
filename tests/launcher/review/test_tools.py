"""pre-commit, sarif-tools and junitparser read what `validate --format` prints, and the examples of the guide fit
the schemas that GitHub and GitLab publish for pipelines.

`make test-clients` makes their environment, `.venv-review`; pre-commit is in the environment of the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import JOB, ROOT, Command, clean_environment, write_job
from tests.support.doc_examples import blocks

TOOLS = Path(os.environ.get("SMDP_TEST_REVIEW_TOOLS", ROOT / ".venv-review" / "bin"))
PAGE = "docs/how-to/ci/code-review.md"
WRONG = JOB.replace("ml.p4d.24xlarge", "ml.p3.24xlarge")

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not TOOLS.is_dir(), reason="needs the tools of code review: make .venv-review/.ready"),
]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=clean_environment(), capture_output=True, text=True, timeout=300, check=False
    )


def test_sarif_tools_count_the_errors(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "job.yaml").write_text(WRONG)
    (job_folder / "report.sarif").write_text(smdp_launch("validate", "--format", "sarif").stdout, encoding="utf-8")

    summary = run(TOOLS / "sarif", "summary", "report.sarif", cwd=job_folder)

    assert summary.returncode == 0
    assert "error: 1\n" in summary.stdout and " - SMDP301 " in summary.stdout
    refused = run(TOOLS / "sarif", "--check", "error", "summary", "report.sarif", cwd=job_folder)
    assert refused.returncode == 1


def test_junitparser_counts_the_failures(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "wrong.yaml").write_text(WRONG)
    report = smdp_launch("validate", "job.yaml", "wrong.yaml", "--format", "junit").stdout
    (job_folder / "report.xml").write_text(report, encoding="utf-8")

    read = (
        "import junitparser; x = junitparser.JUnitXml.fromfile('report.xml'); print(x.tests, x.failures, len(list(x)))"
    )
    counted = run(TOOLS / "python", "-c", read, cwd=job_folder)

    assert counted.stdout.split() == ["2", "1", "2"]


@pytest.mark.parametrize(
    ("schema", "start"), [("vendor.github-workflows", "name: job files"), ("vendor.gitlab-ci", "job-files:")]
)
def test_examples_match_the_published_schemas(tmp_path: Path, schema: str, start: str) -> None:
    (example,) = (one for one in blocks(PAGE, "yaml") if one.startswith(start))
    (tmp_path / "pipeline.yaml").write_text(example, encoding="utf-8")

    checked = run(TOOLS / "check-jsonschema", "--builtin-schema", schema, "pipeline.yaml", cwd=tmp_path)

    assert checked.returncode == 0, checked.stdout


def test_precommit_hook_refuses_a_wrong_job_file(tmp_path: Path) -> None:
    """With the hook as it is installed: pre-commit builds an environment from a clone of this repository."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in (".pre-commit-hooks.yaml", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, hooks)
    for name in ("smdp_launch", "templates", "docs", "containers", "native"):
        shutil.copytree(ROOT / name, hooks / name, ignore=shutil.ignore_patterns("__pycache__", "build"))
    work = tmp_path / "work"
    write_job(work / "jobs" / "sound")
    write_job(work / "jobs" / "wrong", WRONG)
    for folder in (hooks, work):
        run("git", "init", "-q", cwd=folder)
        run("git", "add", "-A", cwd=folder)
        run("git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "all", cwd=folder)
    precommit = Path(sys.executable).with_name("pre-commit")
    environment = clean_environment(PRE_COMMIT_HOME=str(tmp_path / "cache"))

    def check(file: str) -> subprocess.CompletedProcess[str]:
        command = [precommit, "try-repo", hooks, "smdp-launch-validate", "--files", file]
        return subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    sound, wrong = check("jobs/sound/job.yaml"), check("jobs/wrong/job.yaml")

    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert wrong.returncode == 1
    assert "error[SMDP301]" in wrong.stdout and "jobs/wrong/job.yaml" in wrong.stdout
