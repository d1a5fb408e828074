"""The section ``tracking`` in the request, the variables and the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from smdp_launch import plan
from smdp_launch.planning.summary import summary
from tests.conftest import JOB, Command, write_job

TENSORBOARD = "tracking: {tensorboard: {s3: s3://bucket/boards}}\n"
ALL = """\
tracking:
  tensorboard: {s3: s3://bucket/boards, path: /opt/ml/output/boards}
  mlflow: {experiment: digits, uri: "https://mlflow.example.com"}
  wandb: {project: digits, entity: vision}
"""


def request_of(folder: Path, text: str) -> dict[str, Any]:
    write_job(folder, text=JOB + text)
    return dict(plan(folder / "job.yaml").request)


def tracking_variables(request: dict[str, Any]) -> dict[str, str]:
    return {name: value for name, value in request.get("Environment", {}).items() if "TRACKING" in name}


def test_job_without_trackers_has_neither_field_nor_variables(tmp_path: Path) -> None:
    request = request_of(tmp_path, "")
    assert "TensorBoardOutputConfig" not in request
    assert tracking_variables(request) == {}


def test_tensorboard_has_the_default_folder(tmp_path: Path) -> None:
    request = request_of(tmp_path, TENSORBOARD)
    folder = "/opt/ml/output/tensorboard"
    assert request["TensorBoardOutputConfig"] == {"S3OutputPath": "s3://bucket/boards", "LocalPath": folder}
    assert tracking_variables(request) == {"SMDP_TRACKING": "tensorboard", "SMDP_TRACKING_TENSORBOARD": folder}


def test_every_setting_is_a_variable(tmp_path: Path) -> None:
    request = request_of(tmp_path, ALL)
    assert request["TensorBoardOutputConfig"]["LocalPath"] == "/opt/ml/output/boards"
    assert tracking_variables(request) == {
        "SMDP_TRACKING": "tensorboard,mlflow,wandb",
        "SMDP_TRACKING_TENSORBOARD": "/opt/ml/output/boards",
        "SMDP_TRACKING_MLFLOW_EXPERIMENT": "digits",
        "SMDP_TRACKING_MLFLOW_URI": "https://mlflow.example.com",
        "SMDP_TRACKING_WANDB_PROJECT": "digits",
        "SMDP_TRACKING_WANDB_ENTITY": "vision",
    }


def test_plan_shows_where_the_numbers_go(tmp_path: Path) -> None:
    write_job(tmp_path, text=JOB + ALL)
    made = plan(tmp_path / "job.yaml")
    text = "\n".join(value for _, value in summary(made))
    where = f"s3://bucket/boards/{made.job}/tensorboard-output"
    assert f"TensorBoard: /opt/ml/output/boards copied to {where}" in text
    assert "MLflow: experiment digits in https://mlflow.example.com" in text
    assert "Weights & Biases: project vision/digits" in text
    assert f"objects under {where}: event files, until you delete them" in made.side_effects


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("tracking: {tensorboard: {s3: bucket/boards}}", "SMDP20"),
        ("tracking: {tensorboard: {}}", "SMDP20"),
        ("tracking: {neptune: {project: x}}", "SMDP201"),
        ("tracking: {wandb: {}}", "SMDP20"),
        ("tracking: {mlflow: {experiment: x, uri: 'not an address'}}", "SMDP20"),
        ("tracking: {mlflow: {experiment: x, uri: 'https://me:open-sesame@mlflow.example.com'}}", "SMDP701"),
        ("environment: {SMDP_TRACKING: wandb}", "SMDP605"),
        ("environment: {WANDB_API_KEY: 0123456789abcdef0123}", "SMDP702"),
        ("tracking: 3", "SMDP20"),
    ],
)
def test_wrong_setting_is_refused(smdp_launch: Command, job_folder: Path, line: str, code: str) -> None:
    write_job(job_folder, text=f"{JOB}{line}\n")
    ran = smdp_launch("validate")
    assert ran.returncode == 3, ran.stdout
    assert f"error[{code}" in ran.stderr
    assert "open-sesame" not in ran.stdout + ran.stderr
