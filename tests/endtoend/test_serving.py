"""The digits of the template: trained, deployed and asked for 1,000 digits that the training has not seen."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from smdp_launch.jobs.records.history import STATE_FOLDER
from tests.conftest import command_in
from tests.localcloud.conftest import assert_nothing_runs
from tests.support.json_documents import the_document
from tests.support.notebooks import executed

pytestmark = [pytest.mark.torch, pytest.mark.runs]


def test_endpoint_has_exactly_the_accuracy_of_the_training_log(tmp_path: Path) -> None:
    run = command_in(tmp_path)
    assert run("init", "--template", "mnist").returncode == ExitCode.OK
    launched = run("launch", "--local", "--hosts", "2", "--workers-per-host", "1")
    assert launched.returncode == ExitCode.OK, launched.stderr
    (line,) = run("logs", "--grep", '"event": "result"').stdout.splitlines()
    result = json.loads(line.partition(" | ")[2])
    assert result["digits"] == 1000

    deployed = run("deploy", "--local", "--json")
    assert the_document(deployed, "deploy")["status"] == "InService"
    answer = json.loads(run("invoke", "data/test/images.idx3").stdout)
    labels = (tmp_path / "data" / "test" / "labels.idx1").read_bytes()[8:]
    assert len(answer["labels"]) == len(labels) == 1000
    right = sum(ours == label for ours, label in zip(answer["labels"], labels, strict=True))
    assert right / 1000 == result["accuracy"]
    print(f"\n{right} of 1,000 digits, as in the training log")

    images = (tmp_path / "data" / "test" / "images.idx3").read_bytes()[16:]
    rows = [[list(images[at + 28 * row : at + 28 * row + 28]) for row in range(28)] for at in (0, 784)]
    (tmp_path / "two.json").write_text(json.dumps(rows))
    as_json = json.loads(run("invoke", "two.json").stdout)
    assert as_json["labels"] == answer["labels"][:2]
    assert as_json["probabilities"] == answer["probabilities"][:2]

    wrong = run("invoke", "job.yaml")
    assert (wrong.returncode, "the body is no IDX file" in wrong.stderr) == (ExitCode.SERVICE, True), wrong.stderr
    assert the_document(run("undeploy", "--json"), "undeploy")["left"] == {}
    assert_nothing_runs(str(tmp_path / STATE_FOLDER))


@pytest.mark.filterwarnings("ignore")  # the packages of the kernel print deprecation warnings
def test_notebook_of_the_digits_trains_serves_asks_and_deletes(tmp_path: Path) -> None:
    run = command_in(tmp_path)
    assert run("init", "--template", "mnist", "--notebook").returncode == ExitCode.OK
    job = tmp_path / "job.yaml"
    job.write_text(job.read_text().replace("epochs: 8", "epochs: 2"))
    shown = executed(tmp_path / "job.ipynb")
    assert shown["launch"][-1] == "'completed'"
    assert shown["loss"][0].endswith(" in 62 reports\n")
    assert (shown["deploy"], shown["same"], shown["undeploy"]) == (["'InService'"], ["True"], ["{}"])
    right, of = map(int, re.findall(r"\d+", shown["ask"][0]))
    assert (right > 850, of) == (True, 1000)
    assert "SVG" in shown["show"][0]
    assert_nothing_runs(str(tmp_path / STATE_FOLDER))
