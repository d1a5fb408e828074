"""Notebooks, executed as a person would: every cell in order, in a kernel of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient


def executed(path: Path, *without: str) -> dict[str, Any]:
    """The output of each cell by its id, in its richest form; cells tagged with one of ``without`` are left out.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    notebook.cells = [one for one in notebook.cells if not {*without} & {*one.metadata.get("tags", ())}]
    NotebookClient(notebook, timeout=240, resources={"metadata": {"path": str(path.parent)}}).execute()
    return {one.id: [_shown(output) for output in one.outputs] for one in notebook.cells if one.cell_type == "code"}


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    return str(output.data.get("text/html", output.data["text/plain"]))
