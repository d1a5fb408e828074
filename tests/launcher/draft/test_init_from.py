"""`init --from`: the job file of an estimator or ModelTrainer in a notebook or script, which is only read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smdp_launch.errors import ExitCode
from tests.support.jobs.init import drafted, notes

ESTIMATOR = """\
import boto3, sagemaker
from sagemaker.pytorch import PyTorch
from sagemaker.inputs import FileSystemInput, TrainingInput
session = sagemaker.Session(boto3.Session(region_name="us-west-2"))
role = sagemaker.get_execution_role()
bucket = session.default_bucket()
prefix, hours = "digits", 2
hyper = {"epochs": 3, "lr": 1e-3, "name": prefix + "-x", "bucket": bucket, "layers": [1, 2]}
estimator = PyTorch(
    entry_point="train.py",
    source_dir="src",
    role=role,
    framework_version="2.0.1",
    py_version="py310",
    instance_count=2,
    instance_type="ml.p4d.24xlarge",
    volume_size=200,
    distribution={"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": "-verbose"}}},
    hyperparameters=hyper,
    use_spot_instances=True,
    max_run=3600,
    max_wait=hours * 3600,
    checkpoint_s3_uri=f"s3://{bucket}/{prefix}/checkpoints",
    output_path="s3://{}/{}/out".format(bucket, prefix),
    subnets=["subnet-01234567"],
    security_group_ids=["sg-89abcdef"],
    environment={"MODE": "a"},
    tags=[{"Key": "team", "Value": "vision"}],
    metric_definitions=[{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    sagemaker_session=session,
    code_location="s3://elsewhere/code",
)
train = TrainingInput(f"s3://{bucket}/{prefix}/train", input_mode="FastFile", distribution="ShardedByS3Key")
shared = FileSystemInput("fs-0123456789abcdef0", "FSxLustre", "/fsx/data", "ro")
estimator.fit({"train": train, "test": "s3://my-data/test", "shared": shared})
"""
JOB_OF_ESTIMATOR = {
    "schema": 1,
    "name": "train-on-aws",
    "engine": "smdistributed",
    "framework": {"name": "pytorch", "version": "2.0.1", "python": "3.10"},
    "role": "arn:aws:iam::000000000000:role/your-execution-role",
    "region": "us-west-2",
    "script": {
        "entry": "train.py",
        "source": "src",
        "hyperparameters": {
            "epochs": 3,
            "lr": 0.001,
            "name": "digits-x",
            "bucket": "your-bucket",
            "layers": [1, 2],
        },
    },
    "compute": {"instance_type": "ml.p4d.24xlarge", "instance_count": 2, "volume_gb": 200, "max_run": 3600},
    "spot": {"max_wait": 7200},
    "channels": {
        "train": {"s3": "s3://your-bucket/digits/train", "mode": "FastFile", "distribution": "ShardedByS3Key"},
        "test": {"s3": "s3://my-data/test"},
        "shared": {"fsx": "fs-0123456789abcdef0", "path": "/fsx/data"},
    },
    "output": {"s3": "s3://your-bucket/digits/out"},
    "checkpoint": {"s3": "s3://your-bucket/digits/checkpoints", "shared": True},
    "network": {"subnets": ["subnet-01234567"], "security_groups": ["sg-89abcdef"]},
    "environment": {"MODE": "a"},
    "tags": {"team": "vision"},
    "metrics": {"loss": "loss=([0-9.]+)"},
    "engine_options": {"custom_mpi_options": "-verbose"},
}

TRAINER = """\
from sagemaker.train.model_trainer import ModelTrainer
from sagemaker.train.configs import *
from sagemaker.train.distributed import Torchrun
registry = "763104351884.dkr.ecr.eu-west-1.amazonaws.com"
trainer = ModelTrainer(
    training_image=registry + "/pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-sagemaker",
    role="arn:aws:iam::123456789012:role/training",
    base_job_name="digits",
    source_code=SourceCode(source_dir="./src", entry_script="train.py"),
    compute=Compute(
        instance_type="ml.g5.12xlarge", instance_count=2, volume_size_in_gb=100, enable_managed_spot_training=True
    ),
    distributed=Torchrun(),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=7200, max_wait_time_in_seconds=9000),
    hyperparameters={"epochs": 3},
    networking=Networking(enable_network_isolation=False, enable_inter_container_traffic_encryption=True),
    output_data_config=OutputDataConfig(s3_output_path="s3://results/models", compression_type="NONE"),
    tags=[Tag(key="team", value="vision")],
).with_retry_strategy(RetryStrategy(maximum_retry_attempts=2)).with_checkpoint_config(
    CheckpointConfig(s3_uri="s3://results/checkpoints")
)
test = Channel(channel_name="test", data_source=DataSource(s3_data_source=S3DataSource(s3_uri="s3://data/test")))
trainer.train(input_data_config=[InputData(channel_name="train", data_source="s3://data/train"), test], wait=False)
"""
JOB_OF_TRAINER = {
    "schema": 1,
    "name": "digits",
    "engine": "nccl",
    "framework": {"name": "pytorch", "version": "2.5.1"},
    "image": "763104351884.dkr.ecr.eu-west-1.amazonaws.com"
    "/pytorch-training:2.5.1-gpu-py311-cu124-ubuntu22.04-sagemaker",
    "role": "arn:aws:iam::123456789012:role/training",
    "region": "eu-west-1",
    "script": {"entry": "train.py", "source": "src", "hyperparameters": {"epochs": 3}},
    "compute": {
        "instance_type": "ml.g5.12xlarge",
        "instance_count": 2,
        "volume_gb": 100,
        "max_run": 7200,
        "retries": 2,
    },
    "spot": {"max_wait": 9000},
    "channels": {"train": {"s3": "s3://data/train"}, "test": {"s3": "s3://data/test"}},
    "output": {"s3": "s3://results/models", "compression": "none"},
    "checkpoint": {"s3": "s3://results/checkpoints", "shared": True},
    "network": {"encrypt_traffic": True},
    "tags": {"team": "vision"},
}


def notebook(*cells: str) -> str:
    """A notebook with the code cells, after a cell of text."""
    code = [{"cell_type": "code", "source": one.splitlines(keepends=True), "metadata": {}} for one in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": "# Title", "metadata": {}}, *code]})


@pytest.mark.parametrize("kind", ["script", "notebook"])
def test_estimator_gives_its_job_file(tmp_path: Path, kind: str) -> None:
    name, text = "train_on_aws.py", ESTIMATOR
    if kind == "notebook":
        parts = ESTIMATOR.partition("prefix, hours")
        name, text = (
            "train_on_aws.ipynb",
            notebook(f"!pip install x\n%matplotlib inline\n{parts[0]}", "".join(parts[1:])),
        )
    ran, job = drafted(tmp_path, name, text)
    assert ran.returncode == 0, ran.stderr
    assert job == JOB_OF_ESTIMATOR
    place, last = ("line 9", "line 31") if kind == "script" else ("cell 3, line 3", "cell 3, line 25")
    assert ran.stdout.startswith(f"wrote job.yaml from PyTorch in {name}, {place}\n")
    assert notes(ran) == [f"not taken over: code_location in {last}"]
    text = (tmp_path / "job.yaml").read_text()
    assert "role/your-execution-role # fill in; sagemaker.get_execution_role()" in text
    assert "bucket: your-bucket # fill in; session.default_bucket()" in text


def test_model_trainer_gives_its_job_file(tmp_path: Path) -> None:
    ran, job = drafted(tmp_path, "train_on_aws.py", TRAINER)
    assert ran.returncode == 0, ran.stderr
    assert job == JOB_OF_TRAINER
    assert notes(ran) == []


def test_options_override_the_call(tmp_path: Path) -> None:
    text = ESTIMATOR.replace("ml.p4d.24xlarge", "ml.g5.12xlarge").replace(
        "use_spot_instances=True", "base_job_name='b'"
    )
    ran, job = drafted(tmp_path, "x.py", text, "--engine", "nccl", "--name", "other")
    assert ran.returncode == 0, ran.stderr
    assert (job["engine"], job["name"], "spot" in job) == ("nccl", "other", False)


@pytest.mark.parametrize(
    ("arguments", "engine", "note"),
    [
        ("instance_type='ml.g5.xlarge'", "nccl", "the call has no distribution; the script runs once for each GPU"),
        ("instance_type='ml.c5.4xlarge'", "gloo", "the call has no distribution; the script runs once on each host"),
        ("distribution={'mpi': {'enabled': True}}", "nccl", ""),
        ("distribution={'torch_distributed': {'enabled': True}}, instance_type='ml.p3.2xlarge'", "nccl", ""),
    ],
)
def test_engine_is_that_of_the_distribution(tmp_path: Path, arguments: str, engine: str, note: str) -> None:
    text = f"from sagemaker.pytorch import PyTorch\nPyTorch('train.py', {arguments}, framework_version='2.5.1').fit()\n"
    ran, job = drafted(tmp_path, "x.py", text.replace("'train.py', ", "entry_point='src/train.py', "))
    assert job["engine"] == engine
    assert (job["script"]["source"], job["script"]["entry"]) == ("src", "train.py")
    assert [one for one in notes(ran) if one.startswith("engine")] == ([f"engine {engine}: {note}"] if note else [])


def test_local_mode_and_switches_that_are_off_are_left_out(tmp_path: Path) -> None:
    text = ESTIMATOR.replace("ml.p4d.24xlarge", "local_gpu").replace(
        "volume_size=200", "keep_alive_period_in_seconds=0"
    )
    ran, job = drafted(tmp_path, "x.py", text)
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED, ran.stderr
    assert job["compute"] == {"instance_count": 2, "max_run": 3600}
    assert 'compute needs "instance_type"' in ran.stderr
    assert "  # instance_type: fill in; the file does not name the type\n" in (tmp_path / "job.yaml").read_text()
    assert "instance_type `local_gpu` is the SDK's local mode: use launch --local" in notes(ran)


def test_errors_of_the_call_are_reported_after_the_file_is_written(tmp_path: Path) -> None:
    ran, job = drafted(tmp_path, "x.py", ESTIMATOR.replace("ml.p4d.24xlarge", "ml.p4d.24xlarg"))
    assert ran.returncode == ExitCode.JOB_FILE_REFUSED
    assert "error[SMDP301]" in ran.stderr
    assert job["compute"]["instance_type"] == "ml.p4d.24xlarg"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.py", "print('x')\n", "x.py has no call of PyTorch, TensorFlow, HuggingFace, Estimator or ModelTrainer"),
        ("x.py", "def f(:\n", "x.py is no Python"),
        ("x.ipynb", "{}", "x.ipynb is no notebook of Jupyter"),
        ("x.ipynb", notebook("def f(:"), "; cell 2 cannot be read as Python"),
        ("x.py", "tf.estimator.Estimator(model_fn=f)\n", "has no call of"),
        (
            "x.py",
            "from x import Estimator\n\nEstimator(image, role, 2)\n",
            "; the Estimator in line 3 is not imported from sagemaker, and has none of these arguments by name: ",
        ),
    ],
)
def test_file_without_a_call_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    ran, job = drafted(tmp_path, name, text)
    assert (ran.returncode, "Traceback" in ran.stderr) == (ExitCode.JOB_FILE_REFUSED, False)
    said = " ".join(ran.stderr.split())
    assert message in said
    assert "help: give the file that makes the estimator" in said
    assert job is None


def test_unusual_expressions_are_read_or_left_out(tmp_path: Path) -> None:
    text = """
a = a + 1
b = f"{b}-{c!r:>5}"
more = {**defaults, "max_run": 60 * 60, **{"volume_size": int("50")}}
big, zero = 10 ** 400, 1 / 0
PyTorch(entry_point="src/train.py", role=a, instance_type=TYPES[n], instance_count=int(x), base_job_name=b,
        hyperparameters={"big": big, "zero": zero, "deep": DEEP, "list": [1, *rest], 7: "{}".format(3), "set": {1}},
        output_path=os.path.join("s3://", bucket, "x"), tags=[t for t in tags], framework_version=v["x"], **more)
""".replace("DEEP", "+".join(["1"] * 400))
    ran, job = drafted(tmp_path, "x.py", text)
    assert (ran.returncode, "Traceback" in ran.stderr) == (ExitCode.JOB_FILE_REFUSED, False), ran.stderr
    assert job["compute"] == {"volume_gb": 50, "max_run": 3600}
    given = job["script"]["hyperparameters"]
    assert given == {
        "big": "your-big",
        "zero": "your-zero",
        "deep": "your-deep",
        "list": "your-list",
        "7": "3",
        "set": "your-set",
    }
    assert job["output"]["s3"] == "s3://your-bucket/x"


@pytest.mark.parametrize("other", [["src"], ["--entry", "train.py"]])
def test_other_inputs_are_excluded(tmp_path: Path, other: list[str]) -> None:
    ran, job = drafted(tmp_path, "x.py", ESTIMATOR, *other)
    assert (ran.returncode, job) == (ExitCode.USAGE, None)
    assert "--from excludes" in ran.stderr


def test_notebook_is_written_for_the_converted_call(tmp_path: Path) -> None:
    ran, job = drafted(tmp_path, "x.py", ESTIMATOR, "--notebook", "--output", "src/job.yaml")
    assert (ran.returncode, job) == (0, None), ran.stderr
    assert "wrote src/job.ipynb; .smdpignore excludes it from the source\n" in ran.stdout
    assert 'JOB = \\"job.yaml\\"' in (tmp_path / "src" / "job.ipynb").read_text()


def test_existing_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("schema: 1\n")
    ran, job = drafted(tmp_path, "x.py", ESTIMATOR)
    assert (ran.returncode, job) == (ExitCode.REFUSED, {"schema": 1})
