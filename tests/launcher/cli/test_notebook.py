"""The notebook template: executed, and written by ``init`` beside the job file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smdp_launch.checking.job import check_job
from smdp_launch.errors import ExitCode
from smdp_launch.notebook.html import card, marked, rows
from smdp_launch.source.scan import scan_source
from smdp_launch.templates import template
from tests.conftest import Command, write_job
from tests.support.notebooks import SCRIPT, executed

# The packages of the kernel print deprecation warnings.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_notebook_runs_up_to_the_model(job_folder: Path) -> None:
    """Without the cells of the SageMaker SDK, which the tests in tests/clients execute."""
    write_job(job_folder, script=SCRIPT)
    (job_folder / "job.ipynb").write_text(template("notebooks/train.ipynb").read_text())
    shown = executed(job_folder / "job.ipynb", "sdk", "sdk3")
    for cell in ("validate", "load", "plan", "launch"):
        assert '<div class="smdp-card">' in shown[cell][-1]
    lines, card = shown["follow"]
    assert {"algo-1 | rank 0", "algo-2 | rank 1"} <= set(lines.splitlines())
    assert "completed" in card
    (folder,) = json.loads(shown["download"][0].replace("'", '"'))
    assert (job_folder / folder / "model.txt").read_text() == "trained"


def test_init_writes_the_notebook_and_excludes_it_from_the_source(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "src" / "train.py").write_text("import torch\n")
    before = scan_source(job_folder / "src").sha256
    arguments = ["init", "src", "--output", "src/mine.yaml", "--notebook", "--yes"]
    ran = smdp_launch(*arguments)
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "wrote src/mine.ipynb; .smdpignore excludes it from the source\n" in ran.stdout
    notebook = json.loads((job_folder / "src" / "mine.ipynb").read_text())
    assert 'JOB = "mine.yaml"' in [line for cell in notebook["cells"] for line in cell["source"]]
    assert scan_source(job_folder / "src").sha256 != before  # the job file lies in it
    (job_folder / "src" / "mine.ipynb").write_text("saved again")
    assert "mine.ipynb" not in [one.name for one in scan_source(job_folder / "src").files]
    again = smdp_launch(*arguments)
    assert again.returncode == ExitCode.REFUSED
    assert smdp_launch(*arguments, "--force").returncode == ExitCode.OK
    assert (job_folder / "src" / ".smdpignore").read_text() == "/mine.ipynb\n"


def test_notebook_of_another_folder_is_refused_beside_an_existing_job_file(
    smdp_launch: Command, job_folder: Path
) -> None:
    write_job(job_folder)
    ran = smdp_launch("init", "src", "--notebook", "--yes")
    assert ran.returncode == ExitCode.REFUSED
    assert "job.yaml exists" in ran.stderr
    assert not (job_folder / "job.ipynb").exists()


def test_existing_job_file_gets_a_notebook_and_is_kept(smdp_launch: Command, job_folder: Path) -> None:
    path = write_job(job_folder)
    before = path.read_bytes()
    ran = smdp_launch("init", "--notebook")
    assert (ran.returncode, ran.stdout) == (ExitCode.OK, "kept job.yaml, wrote job.ipynb\n"), ran.stderr
    assert path.read_bytes() == before
    assert 'JOB = \\"job.yaml\\"' in (job_folder / "job.ipynb").read_text()
    assert smdp_launch("init", "--notebook").returncode == ExitCode.REFUSED  # the notebook exists
    (job_folder / "job.ipynb").unlink()
    assert smdp_launch("init", "--notebook", "--engine", "native").returncode == ExitCode.REFUSED
    assert not (job_folder / "job.ipynb").exists()


def test_notebook_for_an_existing_job_file_is_excluded_from_its_source(smdp_launch: Command, job_folder: Path) -> None:
    write_job(job_folder)
    text = (job_folder / "job.yaml").read_text().replace("source: src", "source: .")
    (job_folder / "src" / "job.yaml").write_text(text)
    before = scan_source(job_folder / "src").sha256
    ran = smdp_launch("init", "--output", "src/job.yaml", "--notebook")
    assert ran.stdout == "kept src/job.yaml, wrote src/job.ipynb; .smdpignore excludes it from the source\n", ran.stderr
    assert scan_source(job_folder / "src").sha256 == before


def test_templates_are_found(job_folder: Path) -> None:
    assert check_job(template("jobs/mnist.yaml"), environ={}).facts is not None
    with pytest.raises(FileNotFoundError, match="no template notebooks/nothing"):
        template("notebooks/nothing.ipynb")


def test_ignore_file_without_final_newline_keeps_its_last_line(smdp_launch: Command, job_folder: Path) -> None:
    (job_folder / "src" / "train.py").write_text("import torch\n")
    (job_folder / "src" / ".smdpignore").write_text("data/")
    assert smdp_launch("init", "src", "--output", "src/mine.yaml", "--notebook", "--yes").returncode == ExitCode.OK
    assert (job_folder / "src" / ".smdpignore").read_text() == "data/\n/mine.ipynb\n"


def test_words_between_backticks_are_code_in_a_message() -> None:
    assert marked("note", "set `a<b` here") == '<div class="smdp-note">set <code>a&lt;b</code> here</div>'


def test_rules_for_rows_outrank_those_of_jupyterlab() -> None:
    """Its stylesheet has `.jp-RenderedHTMLCommon dl dt { float: left; ... }`: one class and two elements."""
    style = card("a", rows([("name", "value")])).partition("<style>")[2].partition("</style>")[0]
    rules = [one for one in style.replace("\n", "").split("}") if re.search(r"\bd[td]\b", one.partition("{")[0])]
    assert len(rules) == 3
    for selector in (part for one in rules for part in one.partition("{")[0].split(",")):
        assert selector.count(".") == 2, selector
    assert any("float:none" in one and "width:auto" in one for one in rules)
