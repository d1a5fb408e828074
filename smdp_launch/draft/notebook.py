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


def ignore_addition(notebook: Path, source: Path) -> str:
    """What is to be appended to the ignore file, so that the notebook is left out of the source folder, which it would
    change each time it is saved; nothing if it lies elsewhere, or is left out already."""
    try:
        line = f"/{notebook.resolve().relative_to(source.resolve()).as_posix()}"
    except ValueError:
        return ""
    ignore = source / IGNORE_FILE
    written = ignore.read_text("utf-8", "surrogateescape") if ignore.exists() else ""
    if line in written.splitlines():
        return ""
    is_ended = not written or written.endswith("\n")
    return f"{line}\n" if is_ended else f"\n{line}\n"
