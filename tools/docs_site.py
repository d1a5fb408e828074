"""MkDocs hook: add the pages of docs/decisions, one file each, to the navigation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Extend the section Decisions of mkdocs.yml, whose first page is decisions/index.md."""
    sections: list[dict[str, Any]] = [entry for entry in config.nav or [] if isinstance(entry, dict)]
    (decisions,) = [section["Decisions"] for section in sections if "Decisions" in section]
    pages = sorted(Path(config.docs_dir, "decisions").glob("[0-9]*.md"))
    decisions.extend(f"decisions/{page.name}" for page in pages)
    return config
