"""Source folders for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.conftest import ROOT

SCRIPTS = ROOT / "tests/launcher/scripts"


def make(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder
