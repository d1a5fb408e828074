"""The SageMaker SDK v3's unmodified `ModelTrainer` sends the plan's request, which the test reads from botocore.

`make test-clients-large` makes the SDK's environment and runs this there. Nothing reaches a network: connecting is an
error.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import smdp_launch
from smdp_launch import EnvironmentProblem, Refused, build_model_trainer
from smdp_launch.catalog.instances import instances
from smdp_launch.source.archive import write_archive
from tests.clients.estimators import Answer, alone, folder
from tests.clients.isolated_shell import run_client
from tests.conftest import JOB, ROOT, write_job
from tests.support.isolation import needs_networks
from tests.support.job_files.generated import TORCH_KINDS, jobs
from tests.support.job_files.good_files import FILES, workshop

__all__ = ["alone", "folder"]  # fixtures

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]

#: Every type whose GPUs the images of all generated jobs support.
TYPES = tuple(one.name for one in instances() if one.cuda_min is None or float(one.cuda_min) <= 11.7)


def client_of(session: Any) -> Any:
    """The client with which the SDK creates training jobs."""
    from sagemaker.core.resources import Base

    return Base.get_sagemaker_client(session=session.boto_session)


class Caught:
    """The requests that trainers with ``session`` would have sent."""

    def __init__(self, session: Any) -> None:
        self.requests: list[dict[str, Any]] = []
        self.uploads: dict[str, bytes] = {}
        events = client_of(session).meta.events
        events.register("before-call.sagemaker.CreateTrainingJob", self.create)
        events.register("before-call.sagemaker.DescribeTrainingJob", self.describe)
        session.boto_session.events.register("before-call.s3.PutObject", self.put)

    def create(self, params: dict[str, Any], **_: object) -> tuple[Answer, dict[str, Any]]:
        self.requests.append(json.loads(params["body"]))
        return Answer(), {"TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/x"}

    def describe(self, params: dict[str, Any], **_: object) -> tuple[Answer, dict[str, Any]]:
        name = json.loads(params["body"])["TrainingJobName"]
        return Answer(), {"TrainingJobName": name, "TrainingJobStatus": "InProgress"}

    def put(self, params: dict[str, Any], **_: object) -> tuple[Answer, dict[str, Any]]:
        self.uploads[params["url_path"]] = params["body"].read()
        return Answer(), {}


def session_in(region: str) -> Any:
    import boto3
    from sagemaker.core.helper.session_helper import Session

    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "example"}
    return Session(boto_session=boto3.Session(region_name=region, **keys))


@pytest.fixture(scope="module")
def session() -> Any:
    """One session for all jobs: each new one loads 15 MB of service descriptions."""
    return session_in("us-east-1")


@pytest.fixture(scope="module")
def every(session: Any) -> Caught:
    """One for the session: of the handlers that answer a call, boto3 asks the first."""
    return Caught(session)


@pytest.fixture
def caught(every: Caught) -> Caught:
    every.requests.clear()
    every.uploads.clear()
    return every


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.stem)
def test_trainer_of_valid_file_sends_request_of_plan(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: Any, caught: Caught
) -> None:
    path = workshop(tmp_path)
    path.write_text(file.read_text())
    monkeypatch.setenv("TEAM", "vision")
    plan = smdp_launch.plan(path)
    if plan.spec.region != session.boto_region_name:
        session = session_in(plan.spec.region)
        caught = Caught(session)
    build_model_trainer(plan, session=session).train(wait=False)
    assert caught.requests == [plan.request]


@settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(job=jobs() | jobs(TORCH_KINDS, TYPES))
def test_trainer_of_generated_job_sends_request_of_plan(
    job: dict[str, Any], folder: Path, session: Any, every: Caught
) -> None:
    os.chdir(folder)
    plan = smdp_launch.plan(job)
    build_model_trainer(plan, session=session).train(wait=False)
    assert every.requests.pop() == plan.request


def test_seed_of_zero_is_in_request(tmp_path: Path, session: Any, caught: Caught) -> None:
    write_job(tmp_path, JOB.replace("train: {s3:", "train: {mode: Pipe, shuffle: 0, s3:"))
    plan = smdp_launch.plan(tmp_path / "job.yaml")
    build_model_trainer(plan, session=session).train(wait=False)
    (channel, *_) = caught.requests.pop()["InputDataConfig"]
    assert channel["ShuffleConfig"] == {"Seed": 0} == plan.request["InputDataConfig"][0]["ShuffleConfig"]


def test_change_of_trainer_is_in_request(tmp_path: Path, session: Any, caught: Caught) -> None:
    trainer = build_model_trainer(write_job(tmp_path), session=session)
    trainer.compute.instance_count, trainer.compute.instance_type = 5, "ml.p3dn.24xlarge"
    trainer.hyperparameters["epochs"] = 7
    trainer.hyperparameters["name"] = "Größe"
    trainer.train(wait=False)
    (request,) = caught.requests
    assert trainer.plan is not None
    assert request["ResourceConfig"]["InstanceCount"] == 5
    assert request["ResourceConfig"]["InstanceType"] == "ml.p3dn.24xlarge"
    assert request["HyperParameters"]["sagemaker_instance_type"] == '"ml.p3dn.24xlarge"'
    assert request["HyperParameters"]["epochs"] == "7"
    assert request["HyperParameters"]["name"] == '"Größe"'
    assert request["Tags"] != trainer.plan.request["Tags"]  # that tag is of another request


def test_trainer_uploads_archive_of_launcher(tmp_path: Path, session: Any, caught: Caught) -> None:
    path = write_job(tmp_path)
    (tmp_path / "src" / ".git").mkdir()
    (tmp_path / "src" / ".git" / "config").write_text("[core]")
    plan = smdp_launch.plan(path)
    build_model_trainer(plan, session=session).train(wait=False)
    expected = BytesIO()
    write_archive(plan.source, expected)
    assert list(caught.uploads.values()) == [expected.getvalue()]
    submitted = json.loads(caught.requests[0]["HyperParameters"]["sagemaker_submit_directory"])
    assert submitted.endswith(next(iter(caught.uploads)).removeprefix("/bucket")), submitted
    with tarfile.open(fileobj=BytesIO(expected.getvalue())) as packed:
        assert packed.getnames() == ["train.py"]


def test_second_train_creates_second_job(tmp_path: Path, session: Any, caught: Caught) -> None:
    text = JOB + "checkpoint: {s3: s3://bucket/checkpoints}\nnetwork: {isolated: true}\n"
    plan = smdp_launch.plan(write_job(tmp_path, text))
    trainer = build_model_trainer(plan, session=session)
    trainer.train(wait=False)
    trainer.train(wait=False)
    first, second = caught.requests
    names = [one["TrainingJobName"] for one in (first, second)]
    assert names[0] == plan.job
    assert names[1] != plan.job
    assert names[1].startswith("small-")
    assert first == plan.request
    assert json.loads(json.dumps(first).replace(names[0], names[1])) == second


def test_dry_run_sends_nothing(tmp_path: Path, session: Any, caught: Caught) -> None:
    trainer = build_model_trainer(write_job(tmp_path), session=session)
    trainer.train(dry_run=True)
    assert (caught.requests, caught.uploads) == ([], {})


def test_placeholders_are_refused(tmp_path: Path, session: Any, caught: Caught) -> None:
    path = write_job(tmp_path, JOB.replace("s3://bucket/output", "s3://your-bucket/output"))
    with pytest.raises(Refused, match="to fill in before AWS"):
        build_model_trainer(path, session=session).train(wait=False)
    assert (caught.requests, caught.uploads) == ([], {})


def test_other_trainer_of_the_session_keeps_its_request(tmp_path: Path, session: Any, caught: Caught) -> None:
    from sagemaker.core.training.configs import Compute, OutputDataConfig, StoppingCondition
    from sagemaker.train.model_trainer import ModelTrainer

    text = JOB.replace("max_run: 600", "max_run: 600\n  max_pending: 3600")
    plan = smdp_launch.plan(write_job(tmp_path, text))
    build_model_trainer(plan, session=session).train(wait=False)
    os.environ["SAGEMAKER_VALIDATE_ROLE"] = "false"
    try:
        other = ModelTrainer(
            training_image=plan.image.uri,
            role=plan.spec.role,
            base_job_name="other",
            compute=Compute(instance_type="ml.p4d.24xlarge", instance_count=1),
            stopping_condition=StoppingCondition(max_runtime_in_seconds=60),
            output_data_config=OutputDataConfig(s3_output_path="s3://bucket/output"),
            sagemaker_session=session,
        )
        ModelTrainer.train.__wrapped__(other, wait=False, logs=False)
    finally:
        del os.environ["SAGEMAKER_VALIDATE_ROLE"]
    ours, theirs = caught.requests
    assert ours["StoppingCondition"] == {"MaxRuntimeInSeconds": 600, "MaxPendingTimeInSeconds": 3600}
    assert theirs["StoppingCondition"] == {"MaxRuntimeInSeconds": 60}
    assert "Tags" not in theirs


def test_session_of_another_region_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="the session's region is eu-west-1 and the job's is us-east-1"):
        build_model_trainer(write_job(tmp_path), session=session_in("eu-west-1"))


def test_estimator_needs_version_2(tmp_path: Path) -> None:
    with pytest.raises(
        EnvironmentProblem, match=r"only version 2 has estimators: run pip install 'sagemaker>=2.200,<3'"
    ):
        smdp_launch.build_estimator(write_job(tmp_path))


def test_trainer_of_guide_sends_request_of_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], session: Any, caught: Caught
) -> None:
    write_job(tmp_path)
    made: list[Any] = []

    def build_watched(job: str) -> Any:
        made.append(build_model_trainer(job, session=session))
        return made[0]

    monkeypatch.setattr(smdp_launch, "build_model_trainer", build_watched, raising=False)
    text = (ROOT / "docs" / "how-to" / "python.md").read_text()
    (code,) = re.findall(
        r"^```python\n(from smdp_launch import build_model_trainer.*?)^```", text, re.MULTILINE | re.DOTALL
    )
    exec(compile(code, "python.md", "exec"), {})
    assert caught.requests == [made[0].plan.request]
    assert made[0].plan.job in capsys.readouterr().out


TRAINS = """\
import os
print("trained by", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
if os.environ["RANK"] == "0":
    open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w").write("trained")
"""
TRAIN = """
import logging
logging.basicConfig(level=logging.INFO)
from smdp_launch import build_model_trainer
trainer = build_model_trainer("job.yaml")
trainer.train()
job = trainer._latest_training_job
job.refresh()
print("OUTCOME", job.training_job_name == trainer.plan.job, job.training_job_status)
print("MODEL", job.model_artifacts.s3_model_artifacts)
"""


@needs_networks
def test_trainer_trains_in_local_cloud_on_two_hosts(tmp_path: Path) -> None:
    text = re.sub(r"channels:\n.*\n", "environment: {SMDP_WORKERS_PER_HOST: '1'}\n", JOB)
    text = text.replace("local: {channels: {train: data}}\n", "").replace("s3://bucket/", "s3://mine/")
    write_job(tmp_path, text, TRAINS)
    ran = run_client(Path(sys.executable), TRAIN, tmp_path)
    assert ran.code == 0, ran.output
    assert "OUTCOME True Completed" in ran.lines
    assert all(f"trained by {rank} of 2" in ran.output for rank in (0, 1)), ran.output
    assert any(line.startswith("MODEL s3://mine/") for line in ran.lines)
    assert ran.packets_without_route == 0
