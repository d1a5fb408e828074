"""A complete example: job file, scripts and data of a template, for ``init --template``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from smdp_launch.draft.jobfile import SCHEMA_FILE
from smdp_launch.draft.user_files import write_file
from smdp_launch.templates import template


class Example(NamedTuple):
    """A template.

    Args:
        about: what it trains, and with which framework.
        source: the folder of its scripts in the templates.
        files: what its source folder contains, the entry first.
        data: the folder of its data in a checkout, below ``data``.
        prepare: the script that writes the data.
        notebook: trains, serves and asks the model.
        hosts: of the local run that `init` suggests, each with two workers.
    """

    about: str
    source: str
    files: tuple[str, ...]
    data: str = "mnist"
    prepare: str = "prepare_mnist.py"
    notebook: str = "digits.ipynb"
    hosts: int = 2


_BERT = ("bert_inference.py", "reviews.py", "requirements.txt")
EXAMPLES = {
    "mnist": Example("digits: PyTorch's DistributedDataParallel", "scripts", ("mnist_ddp.py", "mnist_inference.py")),
    "mnist_tf2": Example("digits: TensorFlow 2 with a gradient tape", "tensorflow", ("mnist_tf2.py", "inference.py")),
    "mnist_keras": Example(
        "digits: model.fit of Keras on TensorFlow", "tensorflow", ("mnist_keras.py", "mnist_tf2.py", "inference.py")
    ),
    "bert": Example(
        "reviews: a BERT with the Trainer of Hugging Face",
        "bert",
        ("bert_trainer.py", *_BERT),
        data="reviews",
        prepare="prepare_reviews.py",
        notebook="bert.ipynb",
        hosts=1,
    ),
    "bert_loop": Example(
        "reviews: the same BERT in a loop with DistributedDataParallel",
        "bert",
        ("bert_loop.py", *_BERT),
        data="reviews",
        prepare="prepare_reviews.py",
        notebook="bert.ipynb",
        hosts=1,
    ),
    "detection": Example(
        "shapes in images: a Mask R-CNN of torchvision",
        "detection",
        ("detection.py", "detection_inference.py", "maskrcnn.py", "requirements.txt"),
        data="shapes",
        prepare="prepare_shapes.py",
        notebook="detection.ipynb",
        hosts=1,
    ),
}
SOURCE, DATA = "src", "data"


def packages_of(name: str) -> list[str]:
    """The packages in the example's requirements.txt, by name."""
    example = EXAMPLES[name]
    if "requirements.txt" not in example.files:
        return []
    lines = template(f"{example.source}/requirements.txt").read_text(encoding="utf-8").splitlines()
    names = [re.match(r"[A-Za-z0-9._-]+", line) for line in lines]
    return [one[0] for one in names if one is not None]


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
    OSError: their folder cannot be created.
    EnvironmentProblem: they cannot be written.
    """
    example = EXAMPLES[name]
    (folder / SOURCE).mkdir(exist_ok=True)
    for one in example.files:
        write_file(folder / SOURCE / one, template(f"{example.source}/{one}").read_bytes())


def write_data(name: str, folder: Path) -> None:
    """Raises:
    OSError: it cannot be written.
    """
    command = [sys.executable, str(template(f"scripts/{EXAMPLES[name].prepare}")), str(folder / DATA)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ran.returncode != 0:
        raise OSError(ran.stderr.strip().rpartition("\n")[2])
