"""Job files that `init` writes."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.support import command


def load(text: str, version: tuple[int, int] = (1, 2)) -> Any:
    """The text as parsed by that YAML version."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = version
    return yaml.load(text)


def make(folder: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def drafted(folder: Path, name: str, text: str, *options: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """The command's run for a file with ``text``, and the job file that it wrote."""
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text("import torch\n")
    (folder / name).write_text(text)
    ran = command.run(folder, "init", "--from", name, *options, timeout=60)
    path = folder / "job.yaml"
    return ran, load(path.read_text(encoding="utf-8")) if path.exists() else None


def notes(ran: subprocess.CompletedProcess[str]) -> list[str]:
    return [one.removeprefix("note: ") for one in ran.stderr.splitlines() if one.startswith("note: ")]
