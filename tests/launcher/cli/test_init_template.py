"""``init --template``: a complete example, which validates and trains as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smdp_launch.cli.commands.init import command
from smdp_launch.draft.example import SCRIPTS
from smdp_launch.errors import ExitCode
from tests.conftest import ROOT, Command, command_in


@pytest.fixture
def smdp_launch(tmp_path: Path) -> Command:
    """The command in an empty folder."""
    return command_in(tmp_path)


TEMPLATES = pytest.mark.parametrize("template", SCRIPTS)


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
    scripts = {f"src/{one}" for one in SCRIPTS[template]}
    data = {f"data/{channel}/{file}" for channel in ("train", "test") for file in ("images.idx3", "labels.idx1")}
    assert written(tmp_path).keys() == {"job.yaml", *scripts, *data}
    for one in SCRIPTS[template]:
        assert (tmp_path / "src" / one).read_bytes() == (ROOT / "templates" / "scripts" / one).read_bytes()
    job = (tmp_path / "job.yaml").read_text()
    assert "../" not in job
    assert "# Locally:       smdp-launch launch --local --hosts 2 --workers-per-host 2\n" in job
    assert smdp_launch("validate").stdout.startswith("job.yaml: valid; ")
    planned = smdp_launch("launch", "--local", "--hosts", "2", "--workers-per-host", "2", "--dry-run")
    assert planned.returncode == ExitCode.OK, planned.stderr


@pytest.mark.parametrize("existing", ["job.yaml", "src/mnist_ddp.py", "data"])
def test_existing_file_is_not_overwritten(existing: str, tmp_path: Path, smdp_launch: Command) -> None:
    (tmp_path / existing).parent.mkdir(exist_ok=True)
    (tmp_path / existing).write_text("mine")
    ran = smdp_launch("init", "--template", "mnist")
    assert (ran.returncode, ran.stderr.startswith(f"smdp-launch: {existing} exists: ")) == (ExitCode.REFUSED, True)
    assert written(tmp_path) == {existing: b"mine"}


@pytest.mark.parametrize("option", [["--entry", "x.py"], ["--name", "x"], ["--engine", "native"], ["--notebook"]])
def test_options_for_a_script_are_refused(option: list[str], tmp_path: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("init", "--template", "mnist", *option)
    assert ran.returncode == ExitCode.USAGE
    assert ran.stderr.endswith(f"Error: --template excludes {option[0]}\n")
    assert written(tmp_path) == {}


def test_another_job_file_is_named_in_the_commands(tmp_path: Path, smdp_launch: Command) -> None:
    ran = smdp_launch("init", "--template", "mnist", "--output", "first.yaml")
    assert ran.stdout.endswith("next: smdp-launch launch first.yaml --local --hosts 2 --workers-per-host 2\n")
    assert "smdp-launch launch first.yaml --local" in (tmp_path / "first.yaml").read_text()


def test_help_lists_every_template() -> None:
    (option,) = [one for one in command.params if one.name == "template"]
    assert list(option.type.choices) == list(SCRIPTS)  # type: ignore[attr-defined]


@pytest.mark.runs
def test_example_trains_with_the_command_that_init_prints(tmp_path: Path, smdp_launch: Command) -> None:
    hint = smdp_launch("init", "--template", "mnist").stdout.splitlines()[-1].removeprefix("next: smdp-launch ")
    ran = smdp_launch(*hint.split(), "--set", "script.hyperparameters.epochs=2")
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert re.search(r"^result +accuracy 0\.9", ran.stdout, re.MULTILINE)
