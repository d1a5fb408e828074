"""The templates for TensorFlow train a real model, and four workers give the result of one process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.endtoend.conftest import Ran, run_job
from tests.endtoend.leftovers import left_behind
from tests.support.doc_examples import blocks, shell

pytestmark = pytest.mark.tensorflow
SCRIPTS = ROOT / "templates" / "tensorflow"
TEMPLATES = ("mnist_tf2", "mnist_keras")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mnist")
    subprocess.run(
        [sys.executable, ROOT / "templates" / "scripts" / "prepare_mnist.py", folder],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return folder


def train(template: str, folder: Path, data: Path, **hyperparameters: int | str) -> Ran:
    """The template's own job on 2 hosts x 2 workers, with some hyperparameters changed."""
    text = (ROOT / "templates" / "jobs" / f"{template}.yaml").read_text().replace("../tensorflow", str(SCRIPTS))
    more = "".join(f"\n    {name}: {value}" for name, value in hyperparameters.items())
    path = folder / "mnist.yaml"
    path.write_text(text.replace("    lr: 0.05", f"    lr: 0.05{more}"))
    ran = run_job(path, folder / "state", 2, 2, train=data / "train", test=data / "test")
    assert left_behind(str(folder), ran.job) == []
    assert ran.followed.outcome.status == "Completed", ran.followed.outcome.reason
    return ran


def alone(template: str, folder: Path, data: Path, *options: str | Path) -> str:
    """The output of the script in one process, on one thread, as each worker of a local job has."""
    environment = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
    command = [sys.executable, SCRIPTS / f"{template}.py", "--train", data / "train", "--test", data / "test"]
    return subprocess.run(
        [*command, "--model-dir", folder, *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
    ).stdout


def losses(output: str) -> list[float]:
    events = [json.loads(line) for line in output.splitlines() if line.startswith('{"smdp_event"')]
    return [event["loss"] for event in events if event["event"] == "step"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_four_workers_give_the_result_of_one_process(template: str, digits: Path, tmp_path: Path) -> None:
    steps = 50
    ran = train(template, tmp_path, digits, steps=steps)
    single = losses(alone(template, tmp_path, digits, "--steps", str(steps)))
    four = [event.fields["loss"] for event in ran.events("step")]
    assert len(single) == len(four) == steps
    assert min(single) <= single[0] / 2
    worst = max(abs(a - b) / b for a, b in zip(four, single, strict=True))
    print(f"{template}: worst relative difference of a loss over {steps} steps: {worst:.1e}")
    assert worst <= 1e-4


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_mixed_precision_trains_to_nearly_the_same_losses(
    template: str, precision: str, digits: Path, tmp_path: Path
) -> None:
    steps = 50
    ran = train(template, tmp_path, digits, steps=steps, precision=precision)
    lowered = [event.fields["loss"] for event in ran.events("step")]
    exact = losses(alone(template, tmp_path, digits, "--steps", str(steps)))
    assert len(lowered) == len(exact) == steps
    assert min(lowered) <= lowered[0] / 2
    worst = max(abs(a - b) / b for a, b in zip(lowered, exact, strict=True))
    print(f"{template}, {precision}: largest relative difference of a loss from fp32 over {steps} steps: {worst:.1e}")
    assert 0 < worst <= 0.2


@pytest.mark.parametrize("template", TEMPLATES)
def test_four_workers_train_model_that_recognizes_digits(template: str, digits: Path, tmp_path: Path) -> None:
    ran = train(template, tmp_path, digits)
    result = ran.events("result")[0].fields
    assert result["accuracy"] >= 0.90
    assert result["digits"] == 1000
    assert ran.followed.outcome.model is not None
    assert {one.fields["host"] for one in ran.events("workers_started")} == {"algo-1", "algo-2"}


@pytest.mark.parametrize("script", [1, 2], ids=["loop", "model.fit"])
def test_guide_job_trains_with_guide_commands(script: int, tmp_path: Path) -> None:
    page = "docs/how-to/tensorflow.md"
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "train.py").write_text(blocks(page, "python")[script])
    (tmp_path / "job.yaml").write_text(blocks(page, "yaml")[0])
    (commands,) = blocks(page, "sh")
    ran = shell(commands, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^algo-1:0 +\| loss 0\.\d{5}$", ran.stdout, re.MULTILINE), ran.stdout


def test_job_continues_from_checkpoint(digits: Path, tmp_path: Path) -> None:
    """The script alone is started again with its checkpoint folder, as after a spot interruption."""
    kept = ("--checkpoint-dir", tmp_path / "kept", "--checkpoint-every", "10")
    whole = losses(alone("mnist_tf2", tmp_path / "whole", digits, "--steps", "30"))
    alone("mnist_tf2", tmp_path / "first", digits, "--steps", "20", *kept)
    second = alone("mnist_tf2", tmp_path / "second", digits, "--steps", "30", *kept)
    assert "continues after step 20" in second
    assert losses(second) == whole[20:]
