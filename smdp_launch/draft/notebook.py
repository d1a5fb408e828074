"""The notebook that goes with a job file."""

from __future__ import annotations

import json
from pathlib import Path

from smdp_launch.source.ignore import IGNORE_FILE
from smdp_launch.templates import template

_TEMPLATE_JOB = 'JOB = "job.yaml"'


def notebook_for(job_file: Path) -> str:
    """The notebook for a job file that lies beside it.

    Raises:
        ValueError: the template does not name its job file.
    """
    content = json.loads(template("notebooks/train.ipynb").read_text("utf-8"))
    named = 0
    for cell in content["cells"]:
        named += cell["source"].count(_TEMPLATE_JOB)
        cell["source"] = [
            f"JOB = {json.dumps(job_file.name)}" if line == _TEMPLATE_JOB else line for line in cell["source"]
        ]
    if named != 1:
        raise ValueError("the notebook's template names its job file once")
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def ignore_line(notebook: Path, source: Path) -> str | None:
    """What leaves the notebook out of the source folder, which it would change each time it is saved; None if it lies
    elsewhere, or is left out already."""
    try:
        line = f"/{notebook.resolve().relative_to(source.resolve()).as_posix()}"
    except ValueError:
        return None
    return None if line in _text(source / IGNORE_FILE).splitlines() else line


def with_line(path: Path, line: str) -> str:
    """The file's text with one line more, whether or not its last one is ended."""
    text = _text(path)
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"


def _text(path: Path) -> str:
    return path.read_text("utf-8", "surrogateescape") if path.exists() else ""
