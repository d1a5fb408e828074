"""The example of CONTRIBUTING.md for a new service call passes its test, on a copy of the repository."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, clean_environment

COPIED = (
    "smdp_launch",
    "tests",
    "templates",
    "docs",
    "pyproject.toml",
    "conftest.py",
    "native/tests/support/forked_process.py",
)
TABLE = "smdp_launch/localcloud/server/table.py"
SERVICE = "smdp_launch/localcloud/services/keys.py"
TEST = "tests/localcloud/calls/test_keys.py"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    return tmp_path


@pytest.mark.runs
def test_documented_service_call_passes_its_test(copy: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text[text.index("## Add a service call") : text.index("## Add a collective")]
    service, lines, test = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (copy / SERVICE).write_text(service)
    (copy / TEST).write_text(test)
    import_line, entry = lines.rstrip().split("\n\n")
    table = (copy / TABLE).read_text()
    first_import, first_entry = "from smdp_launch.localcloud.services.ec2 ", '        "sagemaker": '
    for anchor, line in ((first_import, import_line), (first_entry, entry)):
        assert table.count(anchor) == 1
        table = table.replace(anchor, f"{line}\n{anchor}")
    (copy / TABLE).write_text(table)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST],
        cwd=copy,
        env=clean_environment(PYTHONPATH=str(copy), PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
