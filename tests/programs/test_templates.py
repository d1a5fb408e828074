"""The templates with packages of their own: trained by two workers, deployed and asked, by notebook and by command."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER
from tests.conftest import ROOT, clean_environment
from tests.localcloud.conftest import assert_nothing_runs

from .environments import AS_THE_TOOLKIT, PYTHON

pytestmark = [pytest.mark.torch, pytest.mark.programs, pytest.mark.timeout(900)]

#: The kernel runs in the Python that executes the notebook.
EXECUTE = """\
import json, sys
from pathlib import Path
from tests.support.notebooks import executed
shown = executed(Path(sys.argv[1]), timeout=600)
Path(sys.argv[2]).write_text(json.dumps(shown), encoding="utf-8")
"""


def in_programs(folder: Path, *arguments: str | Path, code: int = 0, **variables: str) -> str:
    """Run a command of the environment in ``folder``, and return its standard output."""
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = clean_environment(PYTHONPATH=str(ROOT), **offline, **variables)
    ran = subprocess.run(
        [PYTHON, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert ran.returncode == code, ran.stdout[-5000:] + ran.stderr[-5000:]
    return ran.stdout if code == 0 else ran.stderr


def launcher(folder: Path, *arguments: str, code: int = 0) -> str:
    return in_programs(folder, "-m", "smdp_launch", *arguments, code=code)


def notebook_of(folder: Path, template: str) -> dict[str, list[Any]]:
    """The outputs of the template's notebook by cell. Nothing runs afterwards."""
    launcher(folder, "init", "--template", template, "--notebook")
    in_programs(folder, "-W", "ignore", "-c", EXECUTE, folder / "job.ipynb", folder / "shown.json")
    assert_nothing_runs(str(folder / STATE_FOLDER))
    return json.loads((folder / "shown.json").read_text(encoding="utf-8"))


def steps(text: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in text.splitlines() if line.startswith('{"smdp_event"')]
    return [one for one in events if one["event"] == "step"]


def share(text: str) -> float:
    right, of = map(int, re.findall(r"\d+", text)[:2])
    print(text.strip())
    return right / of


def assert_losses_fall(text: str) -> None:
    first, last = map(float, re.findall(r"\d+\.\d+", text))
    assert last < first / 3, text


def test_bert_notebook_has_the_accuracy_of_the_training_log(tmp_path: Path) -> None:
    shown = notebook_of(tmp_path, "bert")
    assert shown["launch"][-1] == "'completed'"
    assert_losses_fall(shown["loss"][0])
    assert "SVG" in shown["loss"][1]
    assert re.findall(r"positive|negative", shown["ask"][0]) == ["positive", "negative"]
    assert share(shown["held-out"][0]) >= 0.95
    assert (shown["same"], shown["undeploy"]) == (["True"], ["{}"])


def test_detection_notebook_finds_what_the_training_log_says(tmp_path: Path) -> None:
    shown = notebook_of(tmp_path, "detection")
    assert shown["launch"][-1] == "'completed'"
    assert_losses_fall(shown["loss"][0])
    labels = json.loads((tmp_path / "data" / "test" / "labels.json").read_text())["0000"]
    names = {1: "disc", 2: "square", 3: "triangle"}
    assert {names[one] for one in labels} & set(re.findall(r"\w+", shown["ask"][0]))
    assert share(shown["held-out"][0]) >= 0.8
    assert (shown["same"], shown["undeploy"]) == (["True"], ["{}"])


def test_bert_loop_trains_is_asked_and_refuses_another_request(tmp_path: Path) -> None:
    hint = launcher(tmp_path, "init", "--template", "bert_loop").splitlines()[-1].removeprefix("next: smdp-launch ")
    launched = launcher(tmp_path, *hint.split())
    assert re.search(r"^result +accuracy (1|0\.9[5-9])", launched, re.MULTILINE), launched[-3000:]
    launcher(tmp_path, "deploy", "--local")
    texts = ["the battery is awful .", "the battery is not awful .", "the battery is awful but the case is great ."]
    (tmp_path / "request.json").write_text(json.dumps({"inputs": texts}))
    answers = json.loads(launcher(tmp_path, "invoke", "request.json"))
    assert [one["label"] for one in answers] == ["negative", "positive", "positive"]
    assert all(0.5 < one["score"] <= 1 for one in answers)
    (tmp_path / "request.json").write_text("{}")
    refused = launcher(tmp_path, "invoke", "request.json", code=ExitCode.SERVICE)
    assert "the body contains no texts: send a list of them" in refused
    launcher(tmp_path, "undeploy")
    assert_nothing_runs(str(tmp_path / STATE_FOLDER))


#: The scripts, and how the Trainer is started: alone, or by SageMaker's toolkit, where it does not prepare the model.
TRAININGS = {"bert": "bert_trainer", "bert-smddp": "bert_trainer", "bert_loop": "bert_loop", "detection": "detection"}
SHOW_SCALES = """\
import runpy, sys
import torch
update = torch.amp.GradScaler.update
def update_and_show(scaler, *arguments):
    update(scaler, *arguments)
    print("scale", scaler.get_scale())
torch.amp.GradScaler.update = update_and_show
sys.argv = sys.argv[1:]
sys.path.insert(0, "src")
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: The first gradients are infinite, so the scaler skips the first step.
SKIP_THE_FIRST_STEP = """\
import functools, runpy, sys
import torch
start = torch.amp.GradScaler.__init__
torch.amp.GradScaler.__init__ = functools.partialmethod(start, init_scale=2.0**60, backoff_factor=2.0**-50)
schedules = []
class Schedule(torch.optim.lr_scheduler.LinearLR):
    def __init__(self, *arguments):
        schedules.append(self)
        super().__init__(*arguments)
torch.optim.lr_scheduler.LinearLR = Schedule
sys.argv = sys.argv[1:]
sys.path.insert(0, "src")
runpy.run_path(sys.argv[0], run_name="__main__")
(schedule,) = schedules
trained = max(int(state["step"]) for state in schedule.optimizer.state.values())
print("trained", trained, "scheduled", schedule.last_epoch)
"""


def shorten(data: Path) -> None:
    """Keep a few samples of each channel."""
    for table in data.glob("*/reviews.csv"):
        table.write_text("".join(table.read_text().splitlines(keepends=True)[:321]))
    for table in data.glob("*/labels.json"):
        table.write_text(json.dumps(dict(sorted(json.loads(table.read_text()).items())[:24])))


@pytest.mark.parametrize("training", TRAININGS)
def test_mixed_precision_begins_with_nearly_the_same_losses(training: str, tmp_path: Path) -> None:
    launcher(tmp_path, "init", "--template", training.removesuffix("-smddp"))
    shorten(tmp_path / "data")
    command = ["-c", SHOW_SCALES, f"src/{TRAININGS[training]}.py", "--epochs", "1", "--lr", "0.001"]
    command += ["--train", "data/train", "--test", "data/test", "--model-dir", "model"]
    variables = {"OMP_NUM_THREADS": "1"}
    if training.endswith("smddp"):
        alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "SMDP_HOST_ID": "algo-1"}
        variables |= {**alone, **AS_THE_TOOLKIT["smddp"], "MASTER_ADDR": "127.0.0.1", "SMDP_INTERFACE": "127.0.0.1"}
    losses, scales = {}, {}
    for precision in ("fp32", "bf16", "fp16"):
        output = in_programs(tmp_path, *command, **variables, MASTER_PORT=str(free_port()), SMDP_AMP=precision)
        assert f"computes on cpu in {precision}" in output.splitlines()
        losses[precision] = [one["loss"] for one in steps(output)]
        scales[precision] = [float(one) for one in re.findall(r"^scale ([\d.]+)$", output, re.MULTILINE)]
    exact = losses["fp32"]
    assert len(exact) >= 4
    for precision in ("bf16", "fp16"):
        assert len(losses[precision]) == len(exact)
        differences = [abs(a - b) / b for a, b in zip(losses[precision], exact, strict=True)]
        print(f"{training}, {precision}: relative differences from fp32: {differences[0]:.1e}, {max(differences):.1e}")
        assert 0 < differences[0] <= 0.02
    assert losses["bf16"][0] != losses["fp16"][0]
    assert {*scales["fp32"], *scales["bf16"]} <= {1.0}  # none, or one that is off
    assert min(scales["fp16"]) > 1.0
    refused = in_programs(tmp_path, *command, "--precision", "fp8", code=2, **variables)
    assert "argument --precision: invalid choice: 'fp8'" in refused


@pytest.mark.parametrize("template", ["bert_loop", "detection"])
def test_step_that_the_scaler_skips_does_not_change_the_learning_rate(template: str, tmp_path: Path) -> None:
    launcher(tmp_path, "init", "--template", template)
    shorten(tmp_path / "data")
    command = ["-c", SKIP_THE_FIRST_STEP, f"src/{template}.py", "--epochs", "1", "--lr", "0.001", "--precision", "fp16"]
    command += ["--train", "data/train", "--test", "data/test", "--model-dir", "model"]
    output = in_programs(tmp_path, *command, OMP_NUM_THREADS="1")
    trained = len(steps(output)) - 1
    assert trained >= 3
    assert f"trained {trained} scheduled {trained}" in output.splitlines()


def test_amp_of_the_job_file_reaches_the_trainer(tmp_path: Path) -> None:
    hint = launcher(tmp_path, "init", "--template", "bert").splitlines()[-1].removeprefix("next: smdp-launch ")
    launched = launcher(tmp_path, *hint.split(), "--set", "amp=fp16", "--set", "script.hyperparameters.epochs=3")
    assert "computes on cpu in fp16" in launched
    assert re.search(r"^result +accuracy (1|0\.9)", launched, re.MULTILINE), launched[-3000:]
    assert_nothing_runs(str(tmp_path / STATE_FOLDER))


@pytest.mark.parametrize("template", ["bert", "bert_loop", "detection"])
def test_template_computes_on_a_gpu_in_fp16(template: str, tmp_path: Path) -> None:
    """With emulated CUDA: a GPU that the host does not have would be an error."""
    hint = launcher(tmp_path, "init", "--template", template).splitlines()[-1].removeprefix("next: smdp-launch ")
    shorten(tmp_path / "data")
    settings = ["--cuda-on-cpu", "--set", "amp=fp16", "--set", "script.hyperparameters.epochs=1"]
    launched = launcher(tmp_path, *hint.split(), *settings)
    assert "algo-1:0 | computes on cuda:0 in fp16" in launched
    assert re.search(r"^result +(accuracy|found) ", launched, re.MULTILINE), launched[-3000:]
    assert_nothing_runs(str(tmp_path / STATE_FOLDER))


def test_trainer_resumes_and_starts_from_a_pretrained_model(tmp_path: Path) -> None:
    """Alone, without a job: the first model is the pretrained one of the second training."""
    launcher(tmp_path, "init", "--template", "bert")

    def train(model: str, epochs: str, *more: str) -> str:
        channels = ["--train", "data/train", "--test", "data/test", "--model-dir", model, "--epochs", epochs]
        return in_programs(tmp_path, "src/bert_trainer.py", *channels, *more, OMP_NUM_THREADS="1")

    trained = steps(train("first", "3", "--lr", "0.001"))
    again = ["--model_name_or_path", "first", "--lr", "0.0005", "--checkpoint-dir", "checkpoints"]
    continued = steps(train("second", "1", *again))
    assert continued[0]["loss"] < trained[0]["loss"] * 0.9
    resumed = steps(train("third", "2", *again))
    assert (resumed[0]["step"], resumed[-1]["step"]) == (continued[-1]["step"] + 5, 2 * continued[-1]["steps"])


RESNET50 = """\
import sys
from pathlib import Path
sys.path.insert(0, "src")
import torch
from maskrcnn import Shapes, detect, layers_of, make_model
model = make_model("resnet50", 64)
images, targets = zip(*[Shapes(Path("data/train"))[index] for index in (0, 1)])
losses = model(list(images), list(targets))
sum(losses.values()).backward()
print(len(losses), all(torch.isfinite(one) for one in losses.values()), len(list(model.parameters())))
print(sorted(detect(model.eval(), images[0])))
print({*model.parameters()} == {one for layers in layers_of(model) for one in layers.parameters()})
"""


def test_resnet50_of_the_detection_takes_the_same_data(tmp_path: Path) -> None:
    launcher(tmp_path, "init", "--template", "detection")
    losses, answer, covers = in_programs(tmp_path, "-c", RESNET50, OMP_NUM_THREADS="1").splitlines()
    assert losses.startswith("5 True ")
    assert answer == "['boxes', 'labels', 'masks', 'scores']"
    assert covers == "True"
