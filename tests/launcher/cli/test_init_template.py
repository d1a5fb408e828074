"""``init --template``: a complete example, which validates and trains as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smdp_launch.cli.commands.init import command
from smdp_launch.draft.example import EXAMPLES, packages_of
from smdp_launch.errors import ExitCode
from tests.conftest import ROOT, Command, command_in


@pytest.fixture
def smdp_launch(tmp_path: Path) -> Command:
    """The command in an empty folder."""
    return command_in(tmp_path)


TEMPLATES = pytest.mark.parametrize("template", EXAMPLES)
#: The files of a channel.
CHANNELS = {"mnist": ("images.idx3", "labels.idx1")}


def written(folder: Path) -> dict[str, bytes]:
    return {
        one.relative_to(folder).as_posix(): one.read_bytes()
        for one in folder.rglob("*")
        if one.is_file() and ".smdp" not in one.parts
    }


@TEMPLATES
def test_example_is_complete_and_valid(template: str, tmp_path: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("init", "--template", template)
    assert ran.returncode == ExitCode.OK, ran.stderr
    example, files = EXAMPLES[template], written(tmp_path).keys()
    data = {one for one in files if one.startswith("data/")}
    assert {"/".join(one.split("/")[:2]) for one in data} == {"data/train", "data/test"}
    if example.data in CHANNELS:
        assert data == {f"data/{channel}/{file}" for channel in ("train", "test") for file in CHANNELS[example.data]}
    assert files - data == {"job.yaml", *(f"src/{one}" for one in example.files)}
    for one in example.files:
        assert (tmp_path / "src" / one).read_bytes() == (ROOT / "templates" / example.source / one).read_bytes()
    job = (tmp_path / "job.yaml").read_text()
    assert "../" not in job
    assert f"# Locally:       smdp-launch launch --local --hosts {example.hosts} --workers-per-host 2\n" in job
    assert "prepare_" not in job
    checked = smdp_launch("validate")
    assert checked.stdout.startswith("job.yaml: valid; ")
    assert "warning" not in checked.stderr
    planned = smdp_launch("launch", "--local", "--hosts", "2", "--workers-per-host", "2", "--dry-run")
    assert planned.returncode == ExitCode.OK, planned.stderr


@pytest.mark.parametrize("existing", ["job.yaml", "src/mnist_ddp.py", "data"])
def test_existing_file_is_not_overwritten(existing: str, tmp_path: Path, smdp_launch: Command) -> None:
    (tmp_path / existing).parent.mkdir(exist_ok=True)
    (tmp_path / existing).write_text("mine")
    ran = smdp_launch("init", "--template", "mnist")
    assert (ran.returncode, ran.stderr.startswith(f"smdp-launch: {existing} exists: ")) == (ExitCode.REFUSED, True)
    assert written(tmp_path) == {existing: b"mine"}


@pytest.mark.parametrize("option", [["--entry", "x.py"], ["--name", "x"], ["--engine", "native"]])
def test_options_for_a_script_are_refused(option: list[str], tmp_path: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("init", "--template", "mnist", *option)
    assert ran.returncode == ExitCode.USAGE
    assert ran.stderr.endswith(f"Error: --template excludes {option[0]}\n")
    assert written(tmp_path) == {}


def test_another_job_file_is_named_in_the_commands(tmp_path: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("init", "--template", "mnist", "--output", "first.yaml")
    assert ran.stdout.endswith("next: smdp-launch launch first.yaml --local --hosts 2 --workers-per-host 2\n")
    assert "smdp-launch launch first.yaml --local" in (tmp_path / "first.yaml").read_text()


@TEMPLATES
def test_notebook_of_the_template_names_the_job_file(template: str, tmp_path: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("init", "--template", template, "--output", "first.yaml", "--notebook")
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert "first.ipynb" in ran.stdout.splitlines()[0]
    cells = json.loads((tmp_path / "first.ipynb").read_text())["cells"]
    assert 'JOB = "first.yaml"' in [line for cell in cells for line in cell["source"]]


def test_template_without_a_name_lists_all_with_their_packages(tmp_path: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("init", "--template")
    assert (ran.returncode, ran.stderr, written(tmp_path)) == (ExitCode.OK, "", {})
    title, *rows, hint = ran.stdout.splitlines()
    assert title.split("  ")[0] == "template"
    assert [one.split()[0] for one in rows] == list(EXAMPLES)
    for row, (name, example) in zip(rows, EXAMPLES.items(), strict=True):
        assert example.about in row
        assert packages_of(name) == [
            one for one in ("torchvision", "transformers", "accelerate") if one in row.split("  ")[-1]
        ]
    assert hint.startswith("next: smdp-launch init --template NAME")


def test_help_lists_every_template() -> None:
    (option,) = [one for one in command.params if one.name == "template"]
    assert list(option.type.choices) == list(EXAMPLES)  # type: ignore[attr-defined]


@pytest.mark.runs
def test_example_trains_with_the_command_that_init_prints(tmp_path: Path, smdp_launch: Command) -> None:
    hint = smdp_launch("init", "--template", "mnist").stdout.splitlines()[-1].removeprefix("next: smdp-launch ")
    ran = smdp_launch(*hint.split(), "--set", "script.hyperparameters.epochs=2")
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert re.search(r"^result +accuracy 0\.9", ran.stdout, re.MULTILINE)
