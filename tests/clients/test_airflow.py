"""Airflow's operator and hook create, follow and stop jobs of the local cloud, without a scheduler or a connection.

`make test-clients-large` makes Airflow's environment.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.isolated_shell import run_client
from tests.conftest import JOB, ROOT, write_job
from tests.support.isolation import needs_networks

AIRFLOW = ROOT / ".venv-airflow" / "bin" / "python"
pytestmark = [pytest.mark.clients, needs_networks, pytest.mark.timeout(600)]

SCRIPT = """
import os, tempfile, time
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp()
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
import logging
logging.basicConfig(level=logging.INFO)
from airflow.providers.amazon.aws.hooks.sagemaker import SageMakerHook
from airflow.providers.amazon.aws.operators.sagemaker import SageMakerTrainingOperator

def config(name, command):
    return {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::000000000000:role/training",
        "AlgorithmSpecification": {
            "TrainingImage": "image", "TrainingInputMode": "File",
            "ContainerEntrypoint": ["bash", "-c"], "ContainerArguments": [command],
        },
        "OutputDataConfig": {"S3OutputPath": "s3://mine/out"},
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }

operator = SageMakerTrainingOperator(
    task_id="train", config=config("followed", "echo line one; echo line two"), aws_conn_id=None, check_interval=1,
    wait_for_completion=True, print_log=True,
)
print("RESULT", operator.execute({})["Training"]["TrainingJobStatus"], flush=True)
failing = SageMakerTrainingOperator(
    task_id="fail", config=config("fails", "exit 3"), aws_conn_id=None, check_interval=1,
    wait_for_completion=True, print_log=False,
)
try:
    failing.execute({})
except Exception as error:
    print("RAISED", type(error).__name__, str(error)[:200].replace(chr(10), " "), flush=True)
hook = SageMakerHook(aws_conn_id=None)
hook.create_training_job(
    config("stopped", "trap 'exit 0' TERM; while :; do sleep 0.1; done"), wait_for_completion=False, print_log=False
)
print("LISTED", [one["TrainingJobName"] for one in hook.list_training_jobs(name_contains="stopped")], flush=True)
hook.get_conn().stop_training_job(TrainingJobName="stopped")
hook.check_status("stopped", "TrainingJobStatus", hook.describe_training_job, 1)
print("STOPPED", hook.describe_training_job("stopped")["TrainingJobStatus"], flush=True)
"""


def test_operator_follows_job_and_hook_stops_it(tmp_path: Path) -> None:
    assert AIRFLOW.exists(), f"{AIRFLOW} is not there: run `make test-clients-large`"
    ran = run_client(AIRFLOW, SCRIPT, tmp_path)
    assert ran.code == 0, ran.output
    assert "RESULT Completed" in ran.lines
    for text in ("line one", "line two"):
        assert sum(text in line and "echo" not in line for line in ran.lines) == 1, ran.output
    assert any(line.startswith("RAISED") and "exit code: 3" in line for line in ran.lines), ran.output
    assert "LISTED ['stopped']" in ran.lines
    assert "STOPPED Stopped" in ran.lines
    assert ran.packets_without_route == 0


EXPORTED = """
import json, os, subprocess, tempfile
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp()
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
import boto3
from airflow.providers.amazon.aws.operators.sagemaker import SageMakerTrainingOperator

subprocess.run(["smdp-launch", "export", "--to", "airflow", "--upload", "--output", "train.json"], check=True)
arguments = json.load(open("train.json"))
operator = SageMakerTrainingOperator(**arguments | {"check_interval": 1}, aws_conn_id=None)
operator.render_template_fields({"ds": "2026-11-27"})
print("RESULT", operator.execute({})["Training"]["TrainingJobStatus"], flush=True)
name = arguments["config"]["TrainingJobName"]
described = boto3.client("sagemaker").describe_training_job(TrainingJobName=name)
print("TEXT", json.loads(described["HyperParameters"]["text"]), flush=True)
"""


def test_operator_runs_an_exported_job_with_its_values_unchanged(tmp_path: Path) -> None:
    assert AIRFLOW.exists(), f"{AIRFLOW} is not there: run `make test-clients-large`"
    job = JOB.replace("{epochs: 2}", "{text: '{{ ds }} {% raw %} {# no #}'}").replace("s3://bucket/", "s3://mine/")
    job = job.replace('channels:\n  train: {s3: "s3://mine/train"}\n', "").replace(
        "local: {channels: {train: data}}\n", ""
    )
    write_job(tmp_path, job, "print('trained')\n")
    ran = run_client(AIRFLOW, EXPORTED, tmp_path)
    assert ran.code == 0, ran.output
    assert "RESULT Completed" in ran.lines
    assert "TEXT {{ ds }} {% raw %} {# no #}" in ran.lines
    assert ran.packets_without_route == 0
