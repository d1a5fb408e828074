"""A reference learning rate that the script does not get: the plan shows it as advice, and `validate` warns."""

from __future__ import annotations

from pathlib import Path

import pytest

from smdp_launch import plan
from smdp_launch.checking.job import check_job
from smdp_launch.planning.summary import summary
from tests.conftest import JOB, write_job

BATCH = "batch: {global: 256, reference_size: 64, reference_learning_rate: 1.0e-05, scaling: sqrt}\n"
OPTIONS = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs')\np.add_argument('--lr', default=RATE)\n"
)
METRIC = "metrics: {loss: 'loss=([0-9.]+)'}\n"
SWEEP = """\
sweep:
  objective: {metric: loss, goal: minimize}
  ranges: {continuous: {lr: {min: 1.0e-06, max: 1.0e-04}}}
  trials: 2
"""


def warnings(folder: Path, text: str, script: str) -> list[str]:
    checked = check_job(write_job(folder, text, script), environ={})
    return [one.message for one in checked.diagnostics if one.code == "SMDP514"]


@pytest.mark.parametrize(
    ("hyperparameters", "row"),
    [
        ("{epochs: 2}", " is advised; the job passes no lr or learning-rate or learning_rate"),
        ("{lr: 2.0e-05}", "; the job sets 2e-05"),
    ],
)
def test_plan_shows_whether_the_job_passes_the_learning_rate(tmp_path: Path, hyperparameters: str, row: str) -> None:
    text = JOB.replace("{epochs: 2}", hyperparameters) + BATCH
    rows = dict(summary(plan(write_job(tmp_path, text))))
    assert rows["learning rate"] == f"1e-05 x sqrt(256 / 64) = 2e-05{row}"


def test_learning_rate_that_no_option_gets_is_reported(tmp_path: Path) -> None:
    # A schedule of the rate is no scaling by the number of workers.
    script = OPTIONS.replace("RATE", "0.1") + "rate = p.parse_args().lr * 0.1 ** (3 // 30)\n"
    assert warnings(tmp_path, JOB + BATCH, script) == [
        "the reference gives a learning rate of 2e-05, but the job passes none to --lr (line 4 of train.py)"
    ]


@pytest.mark.parametrize(
    ("text", "script"),
    [
        (JOB + BATCH, "print('trained')\n"),
        (JOB + BATCH, OPTIONS.replace("RATE", "2e-5")),
        (JOB.replace("epochs: 2", "lr: 2.0e-05") + BATCH, OPTIONS.replace("RATE", "0.1")),
        (JOB + METRIC + SWEEP + BATCH, OPTIONS.replace("RATE", "0.1")),
        (JOB + "batch: {global: 256}\n", OPTIONS.replace("RATE", "0.1")),
    ],
    ids=["no option", "the default is right", "passed", "swept", "no reference"],
)
def test_learning_rate_is_not_reported(tmp_path: Path, text: str, script: str) -> None:
    assert warnings(tmp_path, text, script) == []
