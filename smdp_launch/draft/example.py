"""A complete example: job file, scripts and data of a template, for ``init --template``."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from smdp_launch.draft.jobfile import SCHEMA_FILE
from smdp_launch.templates import template


class Example(NamedTuple):
    """A template.

    Args:
        source: the folder of its scripts in the templates.
        files: what its source folder contains, the entry first.
        data: the folder of its data in a checkout, below ``data``.
        prepare: the script that writes the data.
        notebook: trains, serves and asks the model; None if there is none.
        hosts: of the local run that `init` suggests, each with two workers.
    """

    source: str
    files: tuple[str, ...]
    data: str = "mnist"
    prepare: str = "prepare_mnist.py"
    notebook: str | None = None
    hosts: int = 2


_BERT = ("bert_inference.py", "reviews.py", "requirements.txt")
EXAMPLES = {
    "mnist": Example("scripts", ("mnist_ddp.py", "mnist_inference.py"), notebook="digits.ipynb"),
    "mnist_tf2": Example("tensorflow", ("mnist_tf2.py", "inference.py"), notebook="digits.ipynb"),
    "mnist_keras": Example("tensorflow", ("mnist_keras.py", "mnist_tf2.py", "inference.py"), notebook="digits.ipynb"),
    "bert": Example(
        "bert",
        ("bert_trainer.py", *_BERT),
        data="reviews",
        prepare="prepare_reviews.py",
        notebook="bert.ipynb",
        hosts=1,
    ),
    "bert_loop": Example(
        "bert", ("bert_loop.py", *_BERT), data="reviews", prepare="prepare_reviews.py", notebook="bert.ipynb", hosts=1
    ),
    "detection": Example(
        "detection",
        ("detection.py", "detection_inference.py", "maskrcnn.py", "requirements.txt"),
        data="shapes",
        prepare="prepare_shapes.py",
        notebook="detection.ipynb",
        hosts=1,
    ),
}
SOURCE, DATA = "src", "data"


def files_of(name: str, output: Path) -> list[Path]:
    """The job file at ``output``, and the scripts and the data beside it."""
    folder = output.parent
    return [output, *(folder / SOURCE / one for one in EXAMPLES[name].files), folder / DATA]


def job_text(name: str, output: Path) -> str:
    example = EXAMPLES[name]
    text = template(f"jobs/{name}.yaml").read_text(encoding="utf-8")
    # Paths in the templates of a checkout, and those beside the job file.
    paths = {
        "../../docs/job.schema.json": SCHEMA_FILE,
        f"../{example.source}": SOURCE,
        f"../../data/{example.data}": DATA,
    }
    for old, new in paths.items():
        text = text.replace(old, new)
    text = text.replace(f"templates/jobs/{name}.yaml ", "" if output == Path("job.yaml") else f"{output} ")
    return re.sub(r"# local data .*; prepare_\w+\.py makes it", "# local data for `launch --local`", text)


def write_scripts(name: str, folder: Path) -> None:
    """Raises:
    OSError: they cannot be written.
    """
    example = EXAMPLES[name]
    (folder / SOURCE).mkdir(exist_ok=True)
    for one in example.files:
        shutil.copyfile(template(f"{example.source}/{one}"), folder / SOURCE / one)


def write_data(name: str, folder: Path) -> None:
    """Raises:
    OSError: it cannot be written.
    """
    command = [sys.executable, str(template(f"scripts/{EXAMPLES[name].prepare}")), str(folder / DATA)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode != 0:
        raise OSError(ran.stderr.strip().rpartition("\n")[2])
