"""Executes notebooks: all cells in order, in a new kernel."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient


def executed(path: Path, *without: str, timeout: int = 240) -> dict[str, Any]:
    """The output of each cell by its id, as HTML if it has that form. Cells with a tag in ``without`` are skipped.

    The notebook with its outputs is beside ``path``, to be looked at: ``job-executed.ipynb`` for ``job.ipynb``.

    Args:
        timeout: seconds for each cell.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    notebook.cells = [one for one in notebook.cells if not {*without} & {*one.metadata.get("tags", ())}]
    try:
        NotebookClient(notebook, timeout=timeout, resources={"metadata": {"path": str(path.parent)}}).execute()
    finally:
        nbformat.write(notebook, path.with_name(f"{path.stem}-executed.ipynb"))
    return {one.id: _all_shown(one.outputs) for one in notebook.cells if one.cell_type == "code"}


class WatchingClient(NotebookClient):
    """Executes a notebook and keeps the HTML of each display and of each of its updates, in the order of arrival."""

    def __init__(self, path: Path) -> None:
        notebook = nbformat.read(path, as_version=4)
        super().__init__(notebook, timeout=240, resources={"metadata": {"path": str(path.parent)}})
        self.displayed: list[str] = []
        self.updated: list[str] = []

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        shown = {"display_data": self.displayed, "update_display_data": self.updated}.get(msg["msg_type"])
        if shown is not None:
            shown.append(str(msg["content"]["data"].get("text/html", "")))
        return super().process_message(msg, cell, cell_index)


def notebook_of(path: Path, *cells: str) -> Path:
    """Write a notebook of code cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
    nbformat.write(notebook, path)
    return path


def _all_shown(outputs: list[Any]) -> list[str]:
    """Join printed text, which a kernel may send in several pieces."""
    printed = groupby(outputs, lambda one: one.output_type == "stream")
    shown = [["".join(map(_shown, group))] if stream else list(map(_shown, group)) for stream, group in printed]
    return [text for texts in shown for text in texts]


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    return str(output.data.get("text/html", output.data["text/plain"]))


SCRIPT = """\
import os
print("rank", os.environ["RANK"])
open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w").write("trained")
"""
