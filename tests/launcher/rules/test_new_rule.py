"""A new rule is one function, one page and one wrong file: CONTRIBUTING's example works in a copy of the project."""

from __future__ import annotations

import filecmp
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment

CODE = "SMDP699"
COPIED = ("smdp_launch", "tests", "tools", "docs", "templates", "pyproject.toml", "README.md", "CONTRIBUTING.md")
COPIED += ("containers/entrypoint/smdp_entrypoint", "native/tests/support")  # which have codes, and start processes
WRITTEN = {
    "smdp_launch/rules/request/naming.py": r"^```python\n(\"\"\"Rules about the name.*?)^```$",
    f"docs/errors/{CODE}.md": r"^````markdown\n(.*?)^````$",
    "tests/launcher/golden/wrong/name-without-meaning/job.yaml": r"^```yaml\n(schema: 1\n.*?)^```$",
}
#: Files that the commands in CONTRIBUTING write.
GENERATED = {
    "docs/reference/errors.md",
    "tests/launcher/golden/wrong/name-without-meaning/expected.json",
    "tests/launcher/golden/wrong/name-without-meaning/expected.txt",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    return tmp_path


def run(copy: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=clean_environment(PYTHONPATH=str(copy), PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.runs
def test_new_rule_changes_only_its_own_files(copy: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for path, pattern in WRITTEN.items():
        (content,) = re.findall(pattern, text, re.MULTILINE | re.DOTALL)
        (copy / path).parent.mkdir(exist_ok=True)
        (copy / path).write_text(content)
    run(copy, "tools/error_index.py")
    run(copy, "-m", "tests.support.job_files.wrong_files")
    assert f"warning[{CODE}]" in (copy / "tests/launcher/golden/wrong/name-without-meaning/expected.txt").read_text()
    checks = ["tests/launcher/rules/test_explain.py", "tests/launcher/jobfile/test_golden.py", "tests/test_docs.py"]
    which = f"{CODE} or name-without-meaning or every_rule or index or page_and_every"
    out = run(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *checks, "-k", which)
    assert int(re.findall(r"(\d+) passed", out)[0]) >= 9
    assert {str(one.relative_to(copy)) for one in changed(copy)} == {*WRITTEN, *GENERATED}


def changed(copy: Path) -> list[Path]:
    """The files of the copy that differ from the repository's, or are new."""
    files = [one for name in COPIED for one in [copy / name, *(copy / name).rglob("*")] if one.is_file()]
    return [one for one in files if not same(one, ROOT / one.relative_to(copy))]


def same(one: Path, other: Path) -> bool:
    return other.is_file() and filecmp.cmp(one, other, shallow=False)
