"""Job files that `init` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML


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
