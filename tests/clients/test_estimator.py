"""The SageMaker SDK's unmodified estimators send the plan's request, which the test reads from botocore.

`make test-clients` makes their environment and runs this there. Nothing reaches a network: connecting is an error.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import smdp_launch
from smdp_launch import EnvironmentProblem, Refused, build_estimator, build_inputs
from smdp_launch.source.archive import write_archive
from tests.clients.estimators import Caught, alone, caught, folder, session, trained
from tests.conftest import JOB, ROOT, write_job
from tests.support.job_files.generated import jobs
from tests.support.job_files.good_files import FILES, workshop
from tests.support.other_system import SYSTEMS

__all__ = ["alone", "caught", "folder", "session"]  # fixtures

# Ignore the SDK's own warnings.
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.stem)
def test_estimator_of_valid_file_sends_request_of_plan(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workshop(tmp_path)
    path.write_text(file.read_text())
    monkeypatch.setenv("TEAM", "vision")
    plan = smdp_launch.plan(path)
    _, caught = trained(plan)
    assert caught.requests == [plan.request]


@pytest.mark.parametrize("file", sorted((ROOT / "templates" / "jobs").glob("*.yaml")), ids=lambda one: one.stem)
def test_estimator_of_template_sends_request_of_plan(file: Path, tmp_path: Path) -> None:
    """With placeholders the estimator is refused with their names; without them it sends the request."""
    (tmp_path / "templates").mkdir()
    for one in filter(Path.is_dir, (ROOT / "templates").iterdir()):
        (tmp_path / "templates" / one.name).symlink_to(one)
    for data in ("mnist", "reviews", "shapes"):
        for channel in ("train", "test"):
            (tmp_path / "data" / data / channel).mkdir(parents=True)
            (tmp_path / "data" / data / channel / "part-0").write_text("0")
    path = tmp_path / "templates" / "own" / "job.yaml"
    path.parent.mkdir()
    path.write_text(file.read_text())
    with pytest.raises(Refused, match="to fill in before AWS: image, role, region"):
        build_estimator(path).fit(build_inputs(path))
    text = file.read_text().replace("000000000000", "123456789012").replace("xx-placeholder-1", "eu-west-1")
    path.write_text(text.replace("your-bucket", "training-data").replace("your-execution-role", "training"))
    plan = smdp_launch.plan(path)
    _, caught = trained(plan)
    assert caught.requests == [plan.request]


@settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(job=jobs())
def test_estimator_of_generated_job_sends_request_of_plan(
    job: dict[str, Any], folder: Path, session: Any, caught: Caught
) -> None:
    os.chdir(folder)
    plan = smdp_launch.plan(job)
    build_estimator(plan, session=session).fit(build_inputs(plan), wait=False)
    assert caught.requests.pop() == plan.request


@pytest.mark.parametrize(("planned", "name"), [("ml.p4d.24xlarge", "PyTorch"), ("ml.p5.48xlarge", "Estimator")])
def test_change_of_estimator_is_in_request(tmp_path: Path, planned: str, name: str) -> None:
    text = JOB.replace("ml.p4d.24xlarge", planned) + "policy: extended\n"
    estimator = build_estimator(write_job(tmp_path, text))
    assert type(estimator).__name__ == name
    estimator.instance_count, estimator.instance_type = 5, "ml.p3dn.24xlarge"
    estimator.set_hyperparameters(epochs=7)
    caught = Caught(estimator.sagemaker_session)
    estimator.fit(build_inputs(estimator.plan), wait=False)
    (request,) = caught.requests
    assert request["ResourceConfig"]["InstanceCount"] == 5
    assert request["ResourceConfig"]["InstanceType"] == "ml.p3dn.24xlarge"
    assert request["HyperParameters"]["sagemaker_instance_type"] == '"ml.p3dn.24xlarge"'
    assert request["HyperParameters"]["epochs"] == "7"
    assert request["Tags"] != estimator.plan.request["Tags"]  # that tag is of another request


@pytest.mark.parametrize(
    ("framework", "more", "name"),
    [
        ("{name: pytorch, version: '2.0.1'}", "", "PyTorch"),
        ("{name: tensorflow, version: '2.11.0'}", "", "TensorFlow"),
        ("{name: pytorch, version: '1.10.2', transformers: '4.17.0'}", "", "HuggingFace"),
        ("{name: pytorch, version: '2.0.1'}", "policy: extended\n", "Estimator"),
    ],
)
def test_framework_selects_estimator_class(framework: str, more: str, name: str, tmp_path: Path) -> None:
    """The SDK refuses its switch for p5, so such a job has the generic class with the same hyperparameters."""
    text = JOB.replace('{name: pytorch, version: "2.0.1"}', framework) + more
    if name != "PyTorch":
        text = text.replace("engine: native", "engine: smdistributed").replace("image: ", "# image: ")
    if name == "Estimator":
        text = text.replace("engine: smdistributed", "engine: native").replace("# image: ", "image: ")
        text = text.replace("ml.p4d.24xlarge", "ml.p5.48xlarge")
    plan = smdp_launch.plan(write_job(tmp_path, text))
    estimator, caught = trained(plan)
    assert type(estimator).__name__ == name
    assert caught.requests == [plan.request]
    assert caught.requests[0]["HyperParameters"]["sagemaker_distributed_dataparallel_enabled"] == "true"


def test_estimator_uploads_archive_of_launcher(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    (tmp_path / "src" / ".git").mkdir()
    (tmp_path / "src" / ".git" / "config").write_text("[core]")
    plan = smdp_launch.plan(path)
    _, caught = trained(plan)
    expected = BytesIO()
    write_archive(plan.source, expected)
    assert list(caught.uploads.values()) == [expected.getvalue()]
    submitted = json.loads(caught.requests[0]["HyperParameters"]["sagemaker_submit_directory"])
    assert submitted.endswith(next(iter(caught.uploads)).removeprefix("/bucket")), submitted
    with tarfile.open(fileobj=BytesIO(expected.getvalue())) as packed:
        assert packed.getnames() == ["train.py"]


@pytest.mark.parametrize(
    ("code", "key"), [(None, "alias/results"), ("s3://bucket/code", "alias/results"), ("s3://other/code", None)]
)
def test_source_is_encrypted_with_output_key_in_the_bucket_of_the_results(
    tmp_path: Path, code: str | None, key: str | None
) -> None:
    plan = smdp_launch.plan(write_job(tmp_path, JOB + "encryption: {output_key: alias/results}\n"))
    estimator = build_estimator(plan)
    estimator.code_location = code
    caught = Caught(estimator.sagemaker_session)
    estimator.fit(build_inputs(plan), wait=False)
    encryption = "x-amz-server-side-encryption"
    assert caught.headers.get(encryption) == ("aws:kms" if key else None)
    assert caught.headers.get(f"{encryption}-aws-kms-key-id") == key


def test_second_fit_creates_second_job(tmp_path: Path) -> None:
    path = write_job(tmp_path, JOB + "checkpoint: {s3: s3://bucket/checkpoints}\n")
    plan = smdp_launch.plan(path)
    estimator, caught = trained(plan)
    estimator.fit(build_inputs(plan), wait=False)
    first, second = caught.requests
    names = [one["TrainingJobName"] for one in (first, second)]
    assert names[0] == plan.job
    assert names[1] != plan.job
    assert names[1].startswith("small-")
    for name, request in zip(names, (first, second), strict=True):
        assert request["CheckpointConfig"]["S3Uri"] == f"s3://bucket/checkpoints/{name}"
    assert json.loads(json.dumps(first).replace(names[0], names[1])) == second


def test_other_job_of_the_session_keeps_its_request(tmp_path: Path) -> None:
    """Only the request of this estimator's fit is changed, on a session with other jobs."""
    import boto3
    from sagemaker.estimator import EstimatorBase
    from sagemaker.pytorch import PyTorch
    from sagemaker.session import Session

    text = JOB.replace("max_run: 600", "max_run: 600\n  max_pending: 3600")
    session = Session(boto_session=boto3.Session(region_name="us-east-1"))
    plan = smdp_launch.plan(write_job(tmp_path, text))
    estimator, caught = trained(plan, session=session)
    assert estimator.sagemaker_session is session
    other = PyTorch(
        entry_point="train.py",
        source_dir="s3://bucket/sourcedir.tar.gz",
        image_uri=plan.image.uri,
        role=plan.spec.role,
        instance_count=1,
        instance_type="ml.p4d.24xlarge",
        output_path="s3://bucket/output",
        sagemaker_session=session,
    )
    EstimatorBase.fit.__wrapped__(other, {"train": "s3://bucket/train"}, wait=False)
    ours, theirs = caught.requests
    assert ours["StoppingCondition"] == {"MaxRuntimeInSeconds": 600, "MaxPendingTimeInSeconds": 3600}
    assert theirs["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400}
    assert "Tags" not in theirs


def test_session_of_another_region_is_refused(tmp_path: Path) -> None:
    import boto3
    from sagemaker.session import Session

    session = Session(boto_session=boto3.Session(region_name="eu-west-1"))
    with pytest.raises(EnvironmentProblem, match="the session's region is eu-west-1 and the job's is us-east-1"):
        build_estimator(write_job(tmp_path), session=session)


def test_pipeline_session_is_refused(tmp_path: Path) -> None:
    import boto3
    from sagemaker.workflow.pipeline_context import PipelineSession

    session = PipelineSession(boto_session=boto3.Session(region_name="us-east-1"), default_bucket="bucket")
    with pytest.raises(EnvironmentProblem, match="pipeline"):
        build_estimator(write_job(tmp_path), session=session).fit(build_inputs(tmp_path / "job.yaml"))


QUIET = """\
import json, logging, os, sys, warnings
from smdp_launch import build_estimator, build_inputs
hook = sys.excepthook
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    estimator = build_estimator(sys.argv[1], quiet=sys.argv[2] == "quiet")
    build_inputs(sys.argv[1], quiet=sys.argv[2] == "quiet")
print(json.dumps({
    "warned": [str(one.message) for one in warned if "sagemaker" in type(one.message).__module__],
    "variable": os.environ.get("SAGEMAKER_SUPPRESS_V2_WARNING"),
    "level": logging.getLogger("sagemaker.config").level,
    "same_hook": sys.excepthook is hook,
}))
"""


@pytest.mark.parametrize("quiet", [True, False])
def test_sdk_notices_are_off_by_default(quiet: bool, tmp_path: Path) -> None:
    path = write_job(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", QUIET, path, "quiet" if quiet else "loud"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["variable"] is None
    if quiet:
        assert said == {"warned": [], "variable": None, "level": logging.NOTSET, "same_hook": True}
        assert ran.stderr == ""
    else:
        assert any("v3" in one for one in said["warned"])
        assert "Not applying SDK defaults" in ran.stdout + ran.stderr


def test_telemetry_is_off_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: list[object]) -> None:
    from sagemaker.telemetry import telemetry_logging

    asked: list[str] = []
    monkeypatch.setattr(telemetry_logging.requests, "get", lambda url, *_, **__: asked.append(url))
    monkeypatch.setattr(telemetry_logging, "_get_accountId", lambda _: "123456789012")
    plan = smdp_launch.plan(write_job(tmp_path))
    trained(plan)
    assert asked == []
    trained(plan, quiet=False)
    assert len(asked) == 1


def test_changed_source_changes_plan_tag(tmp_path: Path) -> None:
    """The tag identifies what is submitted: a source that changed after the plan gives another tag."""
    path = write_job(tmp_path)
    plan = smdp_launch.plan(path)
    estimator = build_estimator(plan)
    caught = Caught(estimator.sagemaker_session)
    (tmp_path / "src" / "train.py").write_text("print('changed')\n")
    estimator.fit(build_inputs(plan), wait=False)
    assert caught.requests[0]["Tags"] != plan.request["Tags"]
    assert {**caught.requests[0], "Tags": []} == {**plan.request, "Tags": []}
    (body,) = caught.uploads.values()
    with tarfile.open(fileobj=BytesIO(body)) as packed:
        member = packed.extractfile("train.py")
        assert member is not None
        assert member.read() == b"print('changed')\n"


def test_estimator_of_guide_sends_request_of_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_job(tmp_path)
    watched: list[tuple[Any, Caught]] = []

    def build_watched(job: str) -> Any:
        estimator = build_estimator(job)
        watched.append((estimator, Caught(estimator.sagemaker_session)))
        return estimator

    monkeypatch.setattr(smdp_launch, "build_estimator", build_watched, raising=False)
    text = (ROOT / "docs" / "how-to" / "python.md").read_text()
    (code,) = re.findall(
        r"^```python\n(from smdp_launch import build_estimator.*?)^```", text, re.MULTILINE | re.DOTALL
    )
    exec(compile(code, "python.md", "exec"), {})
    ((estimator, caught),) = watched
    assert caught.requests == [estimator.plan.request]
    assert estimator.plan.job in capsys.readouterr().out


ON_ANOTHER_SYSTEM = """
import json, smdp_launch
plan, requests = smdp_launch.plan("job.yaml"), []
class Answer:
    status_code, headers = 200, {}
def create(params, **_):
    requests.append(json.loads(params["body"]))
    return Answer(), {"TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/x"}
estimator = smdp_launch.build_estimator(plan)
session = estimator.sagemaker_session
session.sagemaker_client.meta.events.register("before-call.sagemaker.CreateTrainingJob", create)
session.boto_session.events.register("before-call.s3.PutObject", lambda **_: (Answer(), {}))
estimator.fit(smdp_launch.build_inputs(plan), wait=False)
print(requests == [plan.request])
"""


@pytest.mark.parametrize("system", SYSTEMS)
def test_estimator_on_another_system_sends_request_of_plan(tmp_path: Path, system: str) -> None:
    write_job(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.other_system", system, "-c", ON_ANOTHER_SYSTEM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.splitlines()[-1:] == ["True"], ran.stderr


GROUPS = """  max_run: 600
  group_name: gpus
  other_groups: {data: {instance_type: ml.c5.18xlarge, instance_count: 3}}
"""
GROUP_SCRIPT = "import os\nprint(os.environ['SM_CURRENT_INSTANCE_GROUP'])\n"


def job_with_groups(folder: Path, engine: str, kind: str, framework: str = "pytorch", version: str = "2.0.1") -> Path:
    text = JOB.replace("  max_run: 600\n", GROUPS).replace("engine: native", f"engine: {engine}")
    text = text.replace("ml.p4d.24xlarge", kind).replace('"s3://bucket/train"', '"s3://bucket/train", groups: [data]')
    text = text.replace('{name: pytorch, version: "2.0.1"}', f'{{name: {framework}, version: "{version}"}}')
    return write_job(folder, text + "policy: extended\n", GROUP_SCRIPT)


@pytest.mark.parametrize(
    ("engine", "kind", "framework", "version", "name"),
    [
        ("native", "ml.p4d.24xlarge", "pytorch", "2.0.1", "PyTorch"),
        ("smdistributed", "ml.p4d.24xlarge", "tensorflow", "2.11.0", "TensorFlow"),
        ("native", "ml.p5.48xlarge", "pytorch", "2.0.1", "Estimator"),
        ("nccl", "ml.g5.12xlarge", "pytorch", "2.0.1", "Estimator"),
        ("gloo", "ml.c5.4xlarge", "pytorch", "2.0.1", "Estimator"),
    ],
)
def test_estimator_with_groups_sends_request_of_plan(
    tmp_path: Path, engine: str, kind: str, framework: str, version: str, name: str
) -> None:
    plan = smdp_launch.plan(job_with_groups(tmp_path, engine, kind, framework, version))
    estimator, caught = trained(plan)
    assert type(estimator).__name__ == name
    assert caught.requests == [plan.request]


def test_request_of_the_sdks_own_call_equals_that_of_the_plan(
    tmp_path: Path, session: Any, caught: Caught, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sagemaker.estimator import EstimatorBase
    from sagemaker.inputs import TrainingInput
    from sagemaker.instance_group import InstanceGroup
    from sagemaker.pytorch import PyTorch

    # Without the SDK's telemetry, and without its upload of the source.
    monkeypatch.setattr(EstimatorBase, "fit", EstimatorBase.fit.__wrapped__)
    plan = smdp_launch.plan(job_with_groups(tmp_path, "smdistributed", "ml.p4d.24xlarge"))
    gpus = InstanceGroup("gpus", "ml.p4d.24xlarge", 2)
    estimator = PyTorch(
        entry_point="train.py",
        source_dir="s3://bucket/sourcedir.tar.gz",
        role=plan.spec.role,
        image_uri=plan.image.uri,
        framework_version="2.0.1",
        py_version="py310",
        instance_groups=[gpus, InstanceGroup("data", "ml.c5.18xlarge", 3)],
        distribution={"smdistributed": {"dataparallel": {"enabled": True}}, "instance_groups": [gpus]},
        output_path=plan.spec.output.s3,
        max_run=600,
        hyperparameters={"epochs": 2},
        sagemaker_session=session,
        debugger_hook_config=False,
        disable_profiler=True,
    )
    inputs = {"train": TrainingInput("s3://bucket/train", instance_groups=["data"], input_mode="File")}
    estimator.fit(inputs, wait=False, job_name=plan.job)
    sent, planned = caught.requests.pop(), dict(plan.request)
    names = {"sagemaker_submit_directory"}  # the SDK has its own archive, in another place
    assert {name: value for name, value in sent.pop("HyperParameters").items() if name not in names} == {
        name: value for name, value in planned.pop("HyperParameters").items() if name not in names
    }
    for one in ("Tags", "Environment"):  # the hash of the plan; the SDK sends an empty environment
        planned.pop(one, None)
        sent.pop(one, None)
    sent.pop("ProfilerConfig", None)  # which only disables the profiler
    sent["AlgorithmSpecification"].pop("EnableSageMakerMetricsTimeSeries")  # the SDK's default
    assert sent == planned
    assert json.loads(plan.request["HyperParameters"]["sagemaker_distribution_instance_groups"]) == ["gpus"]
