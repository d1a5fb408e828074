"""Fixtures for tests of job files."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def user_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the user's ``smdp-defaults.yaml``, which does not exist; no other user's defaults are read."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "config"))
    return tmp_path / "config" / "smdp-launch" / "smdp-defaults.yaml"
