"""`export`: a step of SageMaker Pipelines or of Airflow has the exact request of the plan."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import jinja2
import pytest
from botocore.validate import ParamValidator
from moto import mock_aws

from smdp_launch.errors import ExitCode
from smdp_launch.planning.exports import airflow_arguments, exported, pipeline_definition
from smdp_launch.planning.plan import Plan
from tests.conftest import JOB, Command, write_job
from tests.support.jobs.plans import plan_of
from tests.support.services.cloud import Cloud, as_the_service
from tests.support.services.faulty_service import cloud_with_data

SWEEP = """\
metrics: {loss: 'loss=([0-9.]+)'}
sweep:
  objective: {metric: loss, goal: minimize}
  trials: 4
  ranges: {integer: {depth: {min: 1, max: 4}}}
"""
TEMPLATES = JOB.replace("{epochs: 2}", "{text: '{{ ds }} {% raw %} {# no #} }} %}', epochs: 2}")
MODEL = botocore.session.get_session().get_service_model("sagemaker")


def calls(plan: Plan) -> tuple[str, str, str]:
    """The step's type, the call, and the field with the name."""
    if plan.tuning is not None:
        return "Tuning", "CreateHyperParameterTuningJob", "HyperParameterTuningJobName"
    return "Training", "CreateTrainingJob", "TrainingJobName"


def rendered(value: Any) -> Any:
    """The value as Airflow renders it."""
    if isinstance(value, dict):
        return {key: rendered(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rendered(one) for one in value]
    template = jinja2.Environment(autoescape=False, keep_trailing_newline=True)
    return template.from_string(value).render(ds="2026-11-27") if isinstance(value, str) else value


@pytest.mark.parametrize("text", [JOB, TEMPLATES, JOB + SWEEP], ids=["job", "templates", "sweep"])
def test_arguments_of_the_step_are_those_of_the_plan(tmp_path: Path, text: str) -> None:
    plan = plan_of(write_job(tmp_path, text))
    kind, call, name = calls(plan)
    definition = json.loads(json.dumps(pipeline_definition(plan)))
    assert definition["Version"] == "2020-12-01"
    (step,) = definition["Steps"]
    assert (step["Name"], step["Type"]) == ("small", kind)
    wanted = json.loads(json.dumps(plan.submitted))
    parameters = wanted["TrainingJobDefinition"]["StaticHyperParameters"] if plan.tuning else wanted["HyperParameters"]
    parameters.pop("sagemaker_job_name")
    assert {**step["Arguments"], name: plan.job} == wanted
    shape = MODEL.operation_model(call).input_shape
    assert not ParamValidator().validate({**step["Arguments"], name: "of-the-execution"}, shape).has_errors()


@pytest.mark.parametrize("text", [JOB, TEMPLATES, JOB + SWEEP], ids=["job", "templates", "sweep"])
def test_airflow_gets_the_request_after_it_has_rendered_templates(tmp_path: Path, text: str) -> None:
    plan = plan_of(write_job(tmp_path, text))
    arguments = json.loads(json.dumps(airflow_arguments(plan)))
    assert set(arguments) == {"task_id", "config", "wait_for_completion", "check_interval"}
    assert rendered(arguments["config"]) == json.loads(json.dumps(plan.submitted))
    assert (
        not ParamValidator()
        .validate(arguments["config"], MODEL.operation_model(calls(plan)[1]).input_shape)
        .has_errors()
    )


@mock_aws
@pytest.mark.parametrize("text", [JOB, JOB + SWEEP], ids=["job", "sweep"])
def test_create_pipeline_accepts_the_definition(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    plan = plan_of(write_job(tmp_path, text))
    definition = json.dumps(exported(plan, "pipeline"))
    client = boto3.client("sagemaker", region_name="us-east-1")
    client.create_pipeline(
        PipelineName=plan.spec.name,
        PipelineDefinition=definition,
        RoleArn=plan.spec.role,
        ClientRequestToken="0123456789abcdef0123456789abcdef",
    )
    stored = client.describe_pipeline(PipelineName=plan.spec.name)["PipelineDefinition"]
    assert json.loads(stored) == json.loads(definition)


def test_export_needs_no_network_and_says_what_is_missing(smdp_launch: Command, job_folder: Path) -> None:
    ran = smdp_launch("export", "--to", "pipeline", "--output", "pipeline.json")
    assert (ran.returncode, ran.stdout) == (ExitCode.OK, "")
    assert json.loads((job_folder / "pipeline.json").read_text())["Steps"][0]["Type"] == "Training"
    assert "the source archive is not uploaded: export with --upload" in ran.stderr
    assert "--pipeline-definition file://pipeline.json --role-arn arn:aws:iam::123456789012:role/training" in ran.stderr
    write_job(job_folder, f'{JOB}checkpoint: {{s3: "s3://bucket/checkpoints"}}\n')
    ran = smdp_launch("export", "--to", "airflow")
    assert json.loads(ran.stdout)["task_id"] == "small"
    assert "all runs of the step share the checkpoints" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "job", "code"),
    [
        ([], JOB, ExitCode.USAGE),
        (["--to", "make"], JOB, ExitCode.USAGE),
        (["--to", "pipeline"], JOB.replace("name: small", "nme: small"), ExitCode.JOB_FILE_REFUSED),
        (["--to", "pipeline"], JOB.replace("123456789012", "0" * 12), ExitCode.REFUSED),
        (["--to", "pipeline", "--output", "nowhere/p.json"], JOB, ExitCode.ENVIRONMENT),
    ],
)
def test_wrong_export_prints_no_step(
    smdp_launch: Command, job_folder: Path, arguments: list[str], job: str, code: ExitCode
) -> None:
    write_job(job_folder, job)
    ran = smdp_launch("export", *arguments)
    assert (ran.returncode, ran.stdout) == (code, "")


@pytest.fixture
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud_with_data(tmp_path_factory.mktemp("export") / "state") as made:
        yield made


@pytest.mark.runs
def test_exported_step_runs_with_its_uploaded_source(smdp_launch: Command, tmp_path: Path, cloud: Cloud) -> None:
    ran = smdp_launch("export", "--to", "pipeline", "--upload", env=as_the_service(cloud.endpoint, tmp_path))
    assert ran.returncode == ExitCode.OK, ran.stderr
    assert cloud.sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
    (step,) = json.loads(ran.stdout)["Steps"]
    cloud.sagemaker.create_training_job(**step["Arguments"], TrainingJobName="pipelines-4f2a-small")
    assert cloud.wait("pipelines-4f2a-small")["TrainingJobStatus"] == "Completed"
