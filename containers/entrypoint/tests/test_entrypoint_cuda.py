"""CUDA is imitated where the local cloud asks for it, and nowhere else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smdp_entrypoint.contract import cuda_on_cpu
from smdp_entrypoint.contract.errors import DeviceError

if TYPE_CHECKING:
    from conftest import Host

HAS_ENGINE = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("smdp_engine") is not None
LOCAL = "arn:aws:sagemaker:us-east-1:000000000000:training-job/one"
ON_AWS = "arn:aws:sagemaker:us-east-1:123456789012:training-job/one"
ASKED = {"SMDP_CUDA_ON_CPU": "1"}


def failure(host: Host) -> str:
    return (host.root / "output/failure").read_text()


@pytest.mark.torch
@pytest.mark.skipif(not HAS_ENGINE, reason="torch and smdp-engine are not installed here")
def test_scripts_find_a_gpu_for_each_worker_and_rank_0_says_what_it_is(host: Host) -> None:
    host.job("import torch; print(torch.cuda.device_count(), torch.zeros(2).cuda().tolist())")
    assert host.run(**ASKED, TRAINING_JOB_ARN=LOCAL, SMDP_WORKERS_PER_HOST="2") == 0, host.text
    assert all("2 [0.0, 0.0]" in host.of_rank(rank) for rank in (0, 1))
    assert host.text.count("smdp: CUDA is imitated on the CPU; what that leaves out: docs/cuda-on-cpu.md") == 1


def test_a_job_on_aws_is_refused(host: Host) -> None:
    host.job("print('started')")
    assert host.run(**ASKED, TRAINING_JOB_ARN=ON_AWS) != 0
    assert "CUDA cannot be imitated here: this job runs on AWS, take SMDP_CUDA_ON_CPU out of its" in failure(host)
    assert "started" not in host.text


def test_a_job_on_aws_is_refused_whatever_brings_the_variable(host: Host) -> None:
    options = "-x SMDP_CUDA_ON_CPU=1"
    host.job("print('started')", sagemaker_distributed_dataparallel_custom_mpi_options=options)
    assert host.run(TRAINING_JOB_ARN=ON_AWS) != 0
    assert "this job runs on AWS" in failure(host)


def test_a_host_with_gpus_is_refused() -> None:
    with pytest.raises(DeviceError, match="this host has 8 GPUs, launch without --cuda-on-cpu"):
        cuda_on_cpu.check(ASKED, gpus=8)
    cuda_on_cpu.check({}, gpus=8)


def test_what_is_missing_is_named(host: Host, tmp_path: Path) -> None:
    """On a Python without packages, to which they come one by one."""
    host.python = str(Path(sys.base_prefix) / "bin" / "python3")
    host.job("print('started')")
    path = f"{host.environ()['PYTHONPATH']}:{tmp_path}"

    def refusal() -> str:
        assert host.run(**ASKED, PYTHONPATH=path) != 0
        return failure(host)

    assert "torch is not installed" in refusal()
    (tmp_path / "torch.py").write_text("")
    assert "smdp-engine is not installed" in refusal()
    (tmp_path / "smdp_engine").mkdir()
    (tmp_path / "smdp_engine" / "__init__.py").write_text("")
    assert "the smdp-engine that is installed is too old for it: install it again" in refusal()
