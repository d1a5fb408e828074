"""The template trains a real model, and four workers give the result of one process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.endtoend.conftest import Ran
from tests.support.jobs.mnist import SCRIPTS, digits, model, prepare, train

__all__ = ["digits"]

pytestmark = pytest.mark.torch


def test_channels_have_different_digits(digits: Path) -> None:
    def images(channel: str) -> set[bytes]:
        raw = (digits / channel / "images.idx3").read_bytes()[16:]
        return {raw[at : at + 784] for at in range(0, len(raw), 784)}

    train_images, test_images = images("train"), images("test")
    assert len(test_images) == 1000
    assert not train_images & test_images
    labels = (digits / "test" / "labels.idx1").read_bytes()[8:]
    assert {digit: labels.count(digit) for digit in range(10)} == dict.fromkeys(range(10), 100)


@pytest.fixture(scope="module")
def trained(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The unmodified job of the template."""
    return train(tmp_path_factory.mktemp("trained"), digits)


@pytest.mark.runs
def test_four_workers_train_model_that_recognizes_digits(trained: Ran, tmp_path: Path) -> None:
    result = trained.events("result")[0].fields
    assert result["accuracy"] >= 0.90
    assert result["digits"] == 1000
    assert set(model(trained, tmp_path)) == {
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
        "5.weight",
        "5.bias",
        "7.weight",
        "7.bias",
    }
    assert {one.fields["host"] for one in trained.events("workers_started")} == {"algo-1", "algo-2"}


@pytest.mark.soak
def test_wrong_labels_give_useless_model(tmp_path: Path) -> None:
    data = prepare(tmp_path / "data", "--shuffle-labels")
    assert train(tmp_path, data).events("result")[0].fields["accuracy"] <= 0.2


def run_alone(command: list[str | Path]) -> str:
    """The output of ``command``, on one thread, as each worker of a local job has."""
    environment = {name: value for name, value in os.environ.items() if name not in {"RANK", "WORLD_SIZE"}}
    environment["OMP_NUM_THREADS"] = "1"
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


@pytest.mark.runs
def test_four_workers_give_the_result_of_one_process(digits: Path, tmp_path: Path) -> None:
    import torch

    steps = 50
    ran = train(tmp_path, digits, steps=steps)
    alone = tmp_path / "alone"
    command = [sys.executable, SCRIPTS / "mnist_ddp.py", "--steps", str(steps), "--model-dir", alone]
    command += ["--train", digits / "train", "--test", digits / "test"]
    output = run_alone(command)
    events = [json.loads(line) for line in output.splitlines() if line.startswith('{"smdp_event"')]
    single = [event["loss"] for event in events if event["event"] == "step"]
    four = [event.fields["loss"] for event in ran.events("step")]
    assert len(single) == len(four) == steps
    assert min(single) <= single[0] / 2
    worst = max(abs(a - b) / b for a, b in zip(four, single, strict=True))
    assert worst <= 1e-4
    expected = torch.load(alone / "model.pt", weights_only=True)
    found = model(ran, tmp_path)
    for name, parameter in expected.items():
        torch.testing.assert_close(found[name], parameter, rtol=1e-4, atol=1e-5)
    print(f"worst relative difference of a loss over {steps} steps: {worst:.1e}")


def leaving_at_once(folder: Path) -> Path:
    """The template's scripts, which exit without the interpreter's clean-up.

    DDP keeps its group for ever, and Gloo's threads with it. Now and then one of them lets go of a tensor while the
    interpreter ends, and PyTorch 2.13 aborts. The losses are compared here, not the endings.
    """
    scripts = shutil.copytree(SCRIPTS, folder)
    script = scripts / "mnist_ddp.py"
    text = script.read_text().replace("    main()\n", "    main()\n    sys.stdout.flush()\n    os._exit(0)\n")
    script.write_text(text.replace("import os\n", "import os\nimport sys\n"))
    return scripts


@pytest.mark.runs
def test_smddp_gives_the_result_of_gloo(digits: Path, trained: Ran, tmp_path: Path) -> None:
    gloo = train(tmp_path, digits, leaving_at_once(tmp_path / "scripts"), steps=100, backend="gloo")
    theirs, ours = ([event.fields["loss"] for event in ran.events("step")[:100]] for ran in (gloo, trained))
    assert len(theirs) == len(ours) == 100
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
    print(f"largest relative difference of a loss over 100 steps: {worst:.1e}")
    assert worst <= 1e-5


@pytest.mark.runs
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_mixed_precision_trains_to_nearly_the_same_losses(precision: str, digits: Path, tmp_path: Path) -> None:
    """The key `amp` of the job file arrives in the script; the other run is one process in fp32."""
    steps = 40
    ran = train(tmp_path, digits, amp=precision, steps=steps)
    command = [sys.executable, SCRIPTS / "mnist_ddp.py", "--steps", str(steps), "--model-dir", tmp_path / "alone"]
    output = run_alone([*command, "--train", digits / "train", "--test", digits / "test"])
    assert f"computes on cpu in {precision}" in [one.text for one in ran.lines]
    assert "computes on cpu in fp32" in output
    events = [json.loads(line) for line in output.splitlines() if line.startswith('{"smdp_event"')]
    exact = [event["loss"] for event in events if event["event"] == "step"]
    lowered = [event.fields["loss"] for event in ran.events("step")]
    assert len(lowered) == len(exact) == steps
    worst = max(abs(a - b) / b for a, b in zip(lowered, exact, strict=True))
    print(f"{precision}: largest relative difference of a loss from fp32 over {steps} steps: {worst:.1e}")
    assert 0 < worst <= 0.1


@pytest.mark.runs
def test_job_continues_from_checkpoint(digits: Path, tmp_path: Path) -> None:
    """The script alone is started again with its checkpoint folder, as after a spot interruption."""
    command = [sys.executable, SCRIPTS / "mnist_ddp.py", "--train", digits / "train", "--test", digits / "test"]
    command += ["--checkpoint-dir", tmp_path / "ck", "--checkpoint-every", "10"]
    import torch

    whole = [*command[:-4], "--steps", "30", "--model-dir", tmp_path / "whole"]
    first = [*command, "--steps", "20", "--model-dir", tmp_path / "first"]
    second = [*command, "--steps", "30", "--model-dir", tmp_path / "second"]
    outputs = [run_alone(one) for one in (whole, first, second)]
    assert "continues after step 20" in outputs[2]
    expected = torch.load(tmp_path / "whole" / "model.pt", weights_only=True)
    found = torch.load(tmp_path / "second" / "model.pt", weights_only=True)
    assert all(torch.equal(found[name], parameter) for name, parameter in expected.items())
