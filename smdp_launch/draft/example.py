"""A complete example: job file, script and data of a template, for ``init --template``."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from smdp_launch.draft.jobfile import SCHEMA_FILE
from smdp_launch.templates import template

#: By template: its scripts, the entry first.
SCRIPTS = {
    "mnist": ("mnist_ddp.py", "mnist_inference.py"),
    "mnist_tf2": ("mnist_tf2.py",),
    "mnist_keras": ("mnist_keras.py", "mnist_tf2.py"),
}
SOURCE, DATA = "src", "data"
#: Paths in the templates of a checkout, and those beside the job file.
_PATHS = {"../../docs/job.schema.json": SCHEMA_FILE, "../scripts": SOURCE, "../../data/mnist": DATA}


def files_of(name: str, output: Path) -> list[Path]:
    """The job file at ``output``, and the scripts and the data beside it."""
    folder = output.parent
    return [output, *(folder / SOURCE / script for script in SCRIPTS[name]), folder / DATA]


def job_text(name: str, output: Path) -> str:
    text = template(f"jobs/{name}.yaml").read_text(encoding="utf-8")
    for old, new in _PATHS.items():
        text = text.replace(old, new)
    text = text.replace(f"templates/jobs/{name}.yaml ", "" if output == Path("job.yaml") else f"{output} ")
    return re.sub(r"  # local data .*; prepare_mnist\.py makes it", "  # local data for `launch --local`", text)


def write_scripts(name: str, folder: Path) -> None:
    """Raises:
    OSError: they cannot be written.
    """
    (folder / SOURCE).mkdir(exist_ok=True)
    for script in SCRIPTS[name]:
        shutil.copyfile(template(f"scripts/{script}"), folder / SOURCE / script)


def write_data(folder: Path) -> None:
    """Raises:
    OSError: it cannot be written.
    """
    command = [sys.executable, str(template("scripts/prepare_mnist.py")), str(folder / DATA)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode != 0:
        raise OSError(ran.stderr.strip().rpartition("\n")[2])
