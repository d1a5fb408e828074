"""The templates with packages of their own: trained by two workers, deployed and asked, by notebook and by command."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER
from tests.conftest import ROOT, clean_environment
from tests.localcloud.conftest import assert_nothing_runs

from .environments import PYTHON

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


def test_trainer_resumes_and_starts_from_a_pretrained_model(tmp_path: Path) -> None:
    """Alone, without a job: the first model is the pretrained one of the second training."""
    launcher(tmp_path, "init", "--template", "bert")

    def train(model: str, epochs: str, *more: str) -> str:
        channels = ["--train", "data/train", "--test", "data/test", "--model-dir", model, "--epochs", epochs]
        return in_programs(tmp_path, "src/bert_trainer.py", *channels, *more, OMP_NUM_THREADS="1")

    def steps(text: str) -> list[dict[str, Any]]:
        events = [json.loads(line) for line in text.splitlines() if line.startswith('{"smdp_event"')]
        return [one for one in events if one["event"] == "step"]

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
from maskrcnn import Shapes, detect, make_model
model = make_model("resnet50", 64)
images, targets = zip(*[Shapes(Path("data/train"))[index] for index in (0, 1)])
losses = model(list(images), list(targets))
sum(losses.values()).backward()
print(len(losses), all(torch.isfinite(one) for one in losses.values()), len(list(model.parameters())))
print(sorted(detect(model.eval(), images[0])))
"""


def test_resnet50_of_the_detection_takes_the_same_data(tmp_path: Path) -> None:
    launcher(tmp_path, "init", "--template", "detection")
    losses, answer = in_programs(tmp_path, "-c", RESNET50, OMP_NUM_THREADS="1").splitlines()
    assert losses.startswith("5 True ")
    assert answer == "['boxes', 'labels', 'masks', 'scores']"
