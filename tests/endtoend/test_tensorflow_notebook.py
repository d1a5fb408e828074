"""The notebook of the digits with the templates for TensorFlow, and the refusals of their endpoint."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER
from tests.conftest import ROOT, clean_environment
from tests.localcloud.conftest import assert_nothing_runs

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]


def launcher(folder: Path, *arguments: str, code: int = 0) -> str:
    """What the command prints; what it prints as an error if it is to fail with ``code``."""
    command = [sys.executable, "-m", "smdp_launch", *arguments]
    environment = clean_environment(PYTHONPATH=str(ROOT))
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == code, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stderr if code else ran.stdout


@pytest.mark.parametrize("template", ["mnist_tf2", "mnist_keras"])
def test_notebook_has_the_accuracy_of_the_training_log(template: str, tmp_path: Path) -> None:
    from tests.support.notebooks import executed  # not every environment with these tests has Jupyter

    launcher(tmp_path, "init", "--template", template, "--notebook")
    shown = executed(tmp_path / "job.ipynb", timeout=600)
    assert_nothing_runs(str(tmp_path / STATE_FOLDER))
    assert shown["launch"][-1] == "'completed'"
    first, last = map(float, re.findall(r"\d+\.\d+", shown["loss"][0]))
    assert last < first / 3
    right, of = map(int, re.findall(r"\d+", shown["ask"][0]))
    print(f"{template}: {right} of {of} digits are right")
    assert right >= 900
    assert (of, shown["same"], shown["undeploy"]) == (1000, ["True"], ["{}"])


def test_endpoint_refuses_what_it_cannot_read_with_the_reason(tmp_path: Path) -> None:
    launcher(tmp_path, "init", "--template", "mnist_tf2")
    launch = ["launch", "--local", "--hosts", "1", "--workers-per-host", "2"]
    launcher(tmp_path, *launch, "--set", "script.hyperparameters.steps=20")
    launcher(tmp_path, "deploy", "--local")
    request = tmp_path / "request.json"

    def refused(body: str, kind: str = "application/json") -> str:
        request.write_text(body)
        return launcher(tmp_path, "invoke", str(request), "--content-type", kind, code=ExitCode.SERVICE)

    types = "Content type text/html is not supported. Supported types: application/octet-stream, application/json."
    assert f"failed with status 415: input_handler failed: RequestError: {types}" in refused("<p>", "text/html")
    assert "failed with status 400: input_handler failed: RequestError: the body is no IDX" in refused(
        "x", "application/octet-stream"
    )
    assert "the model needs (None, 28, 28)" in refused("[[1, 2]]")
    request.write_text(json.dumps([[[0] * 28] * 28]))
    answer = json.loads(launcher(tmp_path, "invoke", str(request)))
    assert len(answer["labels"]) == len(answer["probabilities"]) == 1
    launcher(tmp_path, "undeploy")
    assert_nothing_runs(str(tmp_path / STATE_FOLDER))
