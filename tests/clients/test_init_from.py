"""`init --from` of a script with a stock estimator: the plan's request is the one that the estimator sends.

`make test-clients` makes the SDK's environment and runs this there. Nothing reaches a network: connecting is an error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import smdp_launch
from smdp_launch.draft.sdk_call.draft import draft_of
from smdp_launch.draft.sdk_call.find import find_call
from smdp_launch.draft.sdk_call.text import job_file_text
from tests.clients.estimators import Caught, alone, caught, session

__all__ = ["alone", "caught", "session"]  # fixtures

pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore")]

START = """\
from sagemaker.debugger import TensorBoardOutputConfig
from sagemaker.estimator import Estimator
from sagemaker.huggingface import HuggingFace
from sagemaker.inputs import FileSystemInput, ShuffleConfig, TrainingInput
from sagemaker.instance_group import InstanceGroup
from sagemaker.pytorch import PyTorch
from sagemaker.tensorflow import TensorFlow

bucket = "bucket"
rest = dict(
    source_dir="src",
    role="arn:aws:iam::123456789012:role/training",
    instance_count=2,
    output_path=f"s3://{bucket}/output",
    sagemaker_session=session,
    debugger_hook_config=False,
    disable_profiler=True,
)
common = dict(entry_point="train.py", **rest)
library = {"smdistributed": {"dataparallel": {"enabled": True}}}
region = "us-east-1"
"""
SCRIPTS = {
    "smdistributed": """
estimator = PyTorch(
    framework_version="2.0.1", py_version="py310", instance_type="ml.p4d.24xlarge", distribution=library,
    hyperparameters={"epochs": 2, "lr": 1e-4, "name": "a b"}, use_spot_instances=True, max_run=3600,
    max_wait=2 * 3600, checkpoint_s3_uri="s3://bucket/checkpoints", **common,
)
estimator.fit({"train": TrainingInput("s3://bucket/train", input_mode="FastFile")}, wait=False)
""",
    "pytorchddp": """
PyTorch(
    framework_version="2.0.1", py_version="py310", instance_type="ml.p4d.24xlarge",
    distribution={"pytorchddp": {"enabled": True, "custom_mpi_options": "-verbose"}}, **common,
).fit({"train": "s3://bucket/train"}, wait=False)
""",
    "torch_distributed": """
estimator = PyTorch(
    framework_version="2.5.1", py_version="py311", instance_type="ml.g5.12xlarge", volume_size=200,
    distribution={"torch_distributed": {"enabled": True}}, keep_alive_period_in_seconds=600, max_retry_attempts=2,
    environment={"MODE": "a"}, tags=[{"Key": "team", "Value": "vision"}],
    metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}], **common,
)
estimator.fit("s3://bucket/train", wait=False)
""",
    "tensorflow": """
tf = TensorFlow(
    framework_version="2.11.0", py_version="py39", instance_type="ml.p4d.24xlarge", distribution=library,
    model_dir=False, subnets=["subnet-01234567"], security_group_ids=["sg-89abcdef"],
    encrypt_inter_container_traffic=True, output_kms_key="alias/results", disable_output_compression=True, **common,
)
tf.fit({"data": FileSystemInput("fs-0123456789abcdef0", "FSxLustre", "/fsx/data")}, wait=False)
""",
    "model_dir": """
TensorFlow(
    "py39", "2.11.0", "s3://bucket/models", instance_type="ml.p4d.24xlarge", distribution=library,
    hyperparameters={"epochs": 1}, **common,
).fit({"train": "s3://bucket/train"}, wait=False)
""",
    "positional": """
def make(hosts, kind="ml.g5.12xlarge"):
    return PyTorch(
        "train.py", "2.5.1", "py311", distribution={"torch_distributed": {"enabled": True}}, instance_type=kind,
        **{**rest, "instance_count": hosts},
    )

estimators, inputs = {}, {}
estimators["first"] = make(3)
inputs["train"] = "s3://bucket/train"
estimators["first"].fit(inputs, wait=False)
""",
    "groups": """
gpus = InstanceGroup("gpus", "ml.p4d.24xlarge", 2)
data = InstanceGroup(instance_group_name="data", instance_type="ml.c5.18xlarge", instance_count=1)
PyTorch(
    framework_version="2.0.1", py_version="py310", instance_groups=[gpus, data], max_run=7200,
    distribution={**library, "instance_groups": [gpus]}, **{**common, "instance_count": None},
).fit({"train": TrainingInput("s3://bucket/train", instance_groups=["data"])}, wait=False)
""",
    "huggingface": """
HuggingFace(
    transformers_version="4.17.0", pytorch_version="1.10.2", py_version="py38", instance_type="ml.p4d.24xlarge",
    distribution=library, **common,
).fit({"train": "s3://bucket/train", "test": TrainingInput("s3://bucket/test", distribution="ShardedByS3Key")},
      wait=False)
""",
    "changed": """
data = TrainingInput("s3://bucket/train", "ShardedByS3Key", "Gzip", "text/csv", "RecordIO", "S3Prefix", None, "Pipe",
                     shuffle_config=ShuffleConfig(5))
estimator = PyTorch(
    framework_version="2.0.1", py_version="py310", instance_type="ml.p4d.24xlarge", distribution=library,
    hyperparameters={"epochs": 2, "lr": 0.1}, environment={"MODE": "a"}, **common,
)
estimator.set_hyperparameters(epochs=90)
estimator.instance_count = 8
estimator.max_run = 7200
estimator.environment["LEVEL"] = "b"
estimator.fit({"train": data}, wait=False)
""",
}
#: Values with the job's name or its source, and fields without an effect.
DIFFERING = ("sagemaker_submit_directory", "sagemaker_job_name")


def once(value: str) -> str:
    """The value as JSON: the SDK encodes the values of ``set_hyperparameters`` twice, and the script gets the same."""
    inner = json.loads(value)
    return inner if isinstance(inner, str) and inner.isdecimal() else value


def comparable(request: dict[str, Any]) -> dict[str, Any]:
    """The request without the job's name, the plan's tag and what the SDK adds."""
    text = json.dumps(request).replace(request["TrainingJobName"], "JOB")
    result: dict[str, Any] = json.loads(text)
    result["Tags"] = [one for one in result.get("Tags", []) if not one["Key"].startswith("smdp-launch")]
    parameters = result["HyperParameters"]
    result["HyperParameters"] = {name: once(value) for name, value in parameters.items() if name not in DIFFERING}
    result["InputDataConfig"] = sorted(
        (
            {"InputMode": "File"} | one if "S3DataSource" in one["DataSource"] else one
            for one in result["InputDataConfig"]
        ),
        key=lambda one: one["ChannelName"],
    )
    result.pop("ProfilerConfig", None)  # the SDK's own switches
    result["AlgorithmSpecification"].pop("EnableSageMakerMetricsTimeSeries", None)
    if "CheckpointConfig" in result:
        result["CheckpointConfig"].setdefault("LocalPath", "/opt/ml/checkpoints")
    return result


@pytest.mark.parametrize("kind", SCRIPTS)
def test_plan_of_drafted_job_is_request_of_estimator(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: Any, caught: Caught
) -> None:
    from sagemaker.estimator import EstimatorBase

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('trained')\n")
    script = tmp_path / "launch.py"
    script.write_text(START + SCRIPTS[kind])
    caught.requests.clear()
    # Without the SDK's telemetry, and without its upload of the source.
    monkeypatch.setattr(EstimatorBase, "fit", EstimatorBase.fit.__wrapped__)
    text = script.read_text().replace('source_dir="src"', 'source_dir="s3://bucket/sourcedir.tar.gz"')
    exec(compile(text, str(script), "exec"), {"session": session})
    (theirs,) = caught.requests

    found, path = find_call(script), tmp_path / "job.yaml"
    path.write_text(job_file_text(draft_of(found, script, path, None, None), script.name, found.place))
    ours = smdp_launch.plan(path).request
    assert comparable(ours) == comparable(theirs)
