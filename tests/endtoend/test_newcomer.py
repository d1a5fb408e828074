"""The first steps of a new user: a script, a shell on a terminal, and only the hints of the commands."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.conftest import LAUNCHER, clean_environment

pytestmark = pytest.mark.torch
SCRIPT = Path(__file__).parent / "scripts" / "generated_data.py"
PROMPT = "ready> "
FILLED_IN = {
    "000000000000.dkr.ecr.xx-placeholder-1": "123456789012.dkr.ecr.us-east-1",
    "arn:aws:iam::000000000000:role/your-execution-role": "arn:aws:iam::123456789012:role/training",
    "region: xx-placeholder-1": "region: us-east-1",
    "s3://your-bucket/": "s3://training-data/",
}


class Shell:
    """bash on a terminal of 80 columns; counts the typed characters."""

    def __init__(self, folder: Path) -> None:
        environment = clean_environment(
            PATH=f"{LAUNCHER.parent}{os.pathsep}{os.environ['PATH']}", TERM="xterm-256color", HOME=str(folder.parent)
        )
        self.commands = 0
        self._bash = pexpect.spawn(
            "bash",
            ["--norc", "--noprofile", "--noediting", "-i"],
            cwd=folder,
            env=environment | {"PS1": PROMPT, "NO_COLOR": "1"},
            dimensions=(40, 80),
            encoding="utf-8",
            timeout=120,
        )
        self._bash.expect_exact(PROMPT)

    def run(self, command: str, *answers: tuple[str, str]) -> str:
        """The output of the command after all questions are answered."""
        self.commands += 1
        self._bash.sendline(command)
        shown = ""
        for question, answer in answers:
            self._bash.expect_exact(question)
            shown += str(self._bash.before)
            self._bash.sendline(answer)
        self._bash.expect_exact(PROMPT)
        return (shown + str(self._bash.before)).replace("\r\n", "\n")

    def close(self) -> None:
        self._bash.close(force=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "line"
    made.mkdir()
    shutil.copy(SCRIPT, made / "train.py")
    return made


@pytest.fixture
def shell(folder: Path) -> Iterator[Shell]:
    opened = Shell(folder)
    yield opened
    opened.close()


def fill_in(path: Path) -> None:
    text = path.read_text()
    for placeholder, value in FILLED_IN.items():
        assert placeholder in text
        text = text.replace(placeholder, value)
    path.write_text(text)


def model_of(shown: str, folder: Path) -> Path:
    """The file that the last lines of the launch name."""
    model = re.search(r"^model +(\S+)$", shown, re.MULTILINE)
    assert model is not None, shown
    return folder / model[1]


def test_six_commands_turn_script_into_trained_model(shell: Shell, folder: Path) -> None:
    assert "wrote job.yaml" in shell.run("smdp-launch init")
    fill_in(folder / "job.yaml")
    assert shell.run("smdp-launch validate").endswith("job.yaml: valid\nnext: smdp-launch plan\n")
    assert "next: smdp-launch launch --local, then" in shell.run("smdp-launch plan")  # no data: the script generates it
    shown = shell.run("smdp-launch launch --local --hosts 2 --workers-per-host 1")
    assert "completed after" in shown
    assert model_of(shown, folder).is_file()
    assert re.search(r"^next +smdp-launch download$", shown, re.MULTILINE)
    shown = shell.run("smdp-launch download --extract")
    assert shown.endswith("\nnext: smdp-launch launch\n"), shown
    unpacked = re.search(r"extracted to\s+(\S+)$", shown, re.MULTILINE)
    assert unpacked is not None, shown
    import torch  # takes seconds, so not where every process imports this module

    assert torch.load(folder / unpacked[1] / "model.pt", weights_only=True)["weight"].shape == (1, 8)
    assert shell.commands <= 6


def test_selected_script_of_two_trains(shell: Shell, folder: Path) -> None:
    shutil.copy(folder / "train.py", folder / "train_longer.py")
    shown = shell.run("smdp-launch init", ("Which one is the training script?", "2"))
    assert "train_longer.py" in shown
    assert "entry: train_longer.py" in (folder / "job.yaml").read_text()
