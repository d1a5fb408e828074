from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TORCH = "2.13.0"


def build(folder: Path, commit: str) -> Path:
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True, timeout=120)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=folder, check=True, timeout=120)
    command = [sys.executable, "tools/release/release.py", "--torch", TORCH]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=3000)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder / "dist" / "release"


@pytest.fixture(scope="session")
def commit() -> str:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return head.stdout.strip()


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory, commit: str) -> Path:
    return build(tmp_path_factory.mktemp("a") / "first", commit)


@pytest.fixture(scope="session")
def wheels(request: pytest.FixtureRequest) -> Path:
    """A folder with the wheels of a release: the one that SMDP_TEST_WHEELS names, else a new one."""
    named = os.environ.get("SMDP_TEST_WHEELS")
    return Path(named) if named else Path(request.getfixturevalue("first"))
