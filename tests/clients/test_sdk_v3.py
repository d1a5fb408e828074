"""The SageMaker SDK v3's ModelTrainer trains in the local cloud, in a shell with the exports of `local up`.

`make test-clients-large` makes the SDK's environment. The jobs run with the Python of the tests.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.clients.isolated_shell import run_client
from tests.conftest import ROOT
from tests.support.isolation import needs_networks

SDK = ROOT / ".venv-sdk3" / "bin" / "python"
pytestmark = [pytest.mark.clients, needs_networks, pytest.mark.timeout(600)]

TRAINS = """\
import argparse, os
import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--name")
given = parser.parse_args()
dist.init_process_group("gloo")
ranks = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(ranks)
files = sorted(os.listdir(os.environ["SM_CHANNEL_TRAIN"]))
rank, size = dist.get_rank(), dist.get_world_size()
print("rank", rank, "of", size, "sum", ranks.item(), given.lr, given.name, files, flush=True)
if rank == 0:
    open("/opt/ml/model/weights", "w").write("trained")
dist.destroy_process_group()
"""

#: The start of every script: the trainer as in its documentation, without a role or a bucket.
TRAINER = """
import logging
from sagemaker.train.configs import Compute, InputData, SourceCode, StoppingCondition
from sagemaker.train.distributed import Torchrun
from sagemaker.train.model_trainer import ModelTrainer

logging.basicConfig(level=logging.INFO)

def trainer(name, hosts=2, **changes):
    settings = dict(
        training_image="image",
        base_job_name=name,
        source_code=SourceCode(source_dir="src", entry_script="train.py"),
        distributed=Torchrun(process_count_per_node=1),
        compute=Compute(instance_type="ml.p4d.24xlarge", instance_count=hosts, volume_size_in_gb=30),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=600),
        hyperparameters={"lr": 0.1, "name": "abc"},
    )
    return ModelTrainer(**{**settings, **changes})

def outcome(job):
    job.refresh()
    print("OUTCOME", job.training_job_name.split("-")[0], job.training_job_status, getattr(job, "failure_reason", ""))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert SDK.exists(), f"{SDK} is not there: run `make test-clients-large`"
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(TRAINS)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "numbers.txt").write_text("1 2 3")
    return tmp_path


def test_two_concurrent_torchrun_jobs_train_on_two_hosts_each(folder: Path) -> None:
    script = """
        jobs = []
        for name in ("first", "second"):
            one = trainer(name)
            one.train(input_data_config=[InputData(channel_name="train", data_source="data")], wait=False)
            jobs.append(one._latest_training_job)
        for job in jobs:
            job.wait(poll=1, logs=True)
            outcome(job)
            print("MODEL", job.model_artifacts.s3_model_artifacts.split("/")[-3:])
    """
    ran = run_client(SDK, TRAINER + textwrap.dedent(script), folder)
    assert ran.code == 0, ran.output
    for name in ("first", "second"):
        assert any(line.startswith(f"OUTCOME {name} Completed") for line in ran.lines)
    for rank in (0, 1):
        said = f"rank {rank} of 2 sum 3.0 0.1 abc ['numbers.txt']"
        assert sum(said in line for line in ran.lines) == 2, ran.output
    assert sum("MODEL" in line and "model.tar.gz" in line for line in ran.lines) == 2
    assert ran.packets_without_route == 0


def test_plain_driver_stop_and_failure(folder: Path) -> None:
    (folder / "src" / "fails.py").write_text("raise ValueError('my own reason')")
    (folder / "src" / "waits.py").write_text("import time; print('waits', flush=True); time.sleep(600)")
    script = """
        def started(name, script):
            one = trainer(name, 1, distributed=None, source_code=SourceCode(source_dir="src", entry_script=script))
            one.train(wait=False)
            return one._latest_training_job

        fails = started("fails", "fails.py")
        try:
            fails.wait(poll=1)
        except Exception as error:
            print("RAISED", type(error).__name__)
        outcome(fails)
        waits = started("waits", "waits.py")
        import time
        while waits.secondary_status != "Training":
            time.sleep(0.5)
            waits.refresh()
        waits.stop()
        waits.wait(poll=1)
        outcome(waits)
    """
    ran = run_client(SDK, TRAINER + textwrap.dedent(script), folder)
    assert ran.code == 0, ran.output
    assert "RAISED FailedStatusError" in ran.lines
    (failed,) = [line for line in ran.lines if line.startswith("OUTCOME fails")]
    assert failed.startswith("OUTCOME fails Failed AlgorithmError:")
    assert any(line.startswith("OUTCOME waits Stopped") for line in ran.lines)
    assert ran.packets_without_route == 0
