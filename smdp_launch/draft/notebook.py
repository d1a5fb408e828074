"""The notebook for a job file."""

from __future__ import annotations

import json
from pathlib import Path

from smdp_launch.source.ignore import IGNORE_FILE
from smdp_launch.templates import template

_TEMPLATE_JOB = 'JOB = "job.yaml"'


def notebook_for(job_file: Path, notebook: str = "train.ipynb") -> str:
    """The notebook for a job file in the same folder.

    Args:
        notebook: the template.

    Raises:
        ValueError: the template does not contain its job file's name exactly once.
    """
    content = json.loads(template(f"notebooks/{notebook}").read_text("utf-8"))
    occurrences = 0
    for cell in content["cells"]:
        occurrences += cell["source"].count(_TEMPLATE_JOB)
        cell["source"] = [
            f"JOB = {json.dumps(job_file.name)}" if line == _TEMPLATE_JOB else line for line in cell["source"]
        ]
    if occurrences != 1:
        raise ValueError("the notebook's template must contain its job file's name exactly once")
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def ignore_addition(notebook: Path, source: Path) -> str:
    """The text to append to the ignore file, so that saving the notebook does not change the source.

    Empty if the notebook is not in the source folder, or is ignored already."""
    try:
        line = f"/{notebook.resolve().relative_to(source.resolve()).as_posix()}"
    except ValueError:
        return ""
    ignore = source / IGNORE_FILE
    text = ignore.read_text("utf-8", "surrogateescape") if ignore.exists() else ""
    if line in text.splitlines():
        return ""
    ends_with_newline = not text or text.endswith("\n")
    return f"{line}\n" if ends_with_newline else f"\n{line}\n"
