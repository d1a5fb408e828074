"""A hook of MkDocs: puts the pages of the codes and of the decisions, one file each, into the menu."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig

_FOLDERS = {"Errors": "errors", "About": "decisions"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Called by MkDocs when it has read mkdocs.yml."""
    sections: list[dict[str, Any]] = [one for one in config.nav or [] if isinstance(one, dict)]
    for title, folder in _FOLDERS.items():
        (section,) = [one[title] for one in sections if title in one]
        pages = sorted(Path(config.docs_dir, folder).glob("*.md"))
        section.extend(f"{folder}/{page.name}" for page in pages)
    return config
