"""CUDA is emulated where the local cloud requests it, and nowhere else."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from smdp_entrypoint.contract import cuda_on_cpu
from smdp_entrypoint.contract.errors import DeviceError

if TYPE_CHECKING:
    from entrypoint_support.host import Host

HAS_ENGINE = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("smdp_engine") is not None
LOCAL = "arn:aws:sagemaker:us-east-1:000000000000:training-job/one"
ON_AWS = "arn:aws:sagemaker:us-east-1:123456789012:training-job/one"
REQUESTED = {"SMDP_CUDA_ON_CPU": "1"}


def failure(host: Host) -> str:
    return (host.root / "output/failure").read_text()


@pytest.mark.torch
@pytest.mark.skipif(not HAS_ENGINE, reason="torch and smdp-engine are not installed here")
def test_scripts_have_a_gpu_per_worker_and_rank_0_reports_the_emulation(host: Host) -> None:
    host.job("import torch; print(torch.cuda.device_count(), torch.zeros(2).cuda().tolist())")
    assert host.run(**REQUESTED, TRAINING_JOB_ARN=LOCAL, SMDP_WORKERS_PER_HOST="2") == 0, host.text
    assert all("2 [0.0, 0.0]" in host.of_rank(rank) for rank in (0, 1))
    assert host.text.count("smdp: CUDA is emulated on the CPU; for its limits see docs/how-to/cuda-on-cpu.md") == 1


def test_a_job_on_aws_is_refused(host: Host) -> None:
    host.job("print('started')")
    assert host.run(**REQUESTED, TRAINING_JOB_ARN=ON_AWS) != 0
    assert f"CUDA cannot be emulated on this host: the job runs on AWS ({ON_AWS}); remove SMDP_CUDA_ON_CPU" in failure(
        host
    )
    assert "started" not in host.text


def test_job_on_aws_is_refused_also_with_the_variable_in_mpi_options(host: Host) -> None:
    options = "-x SMDP_CUDA_ON_CPU=1"
    host.job("print('started')", sagemaker_distributed_dataparallel_custom_mpi_options=options)
    assert host.run(TRAINING_JOB_ARN=ON_AWS) != 0
    assert "the job runs on AWS" in failure(host)


def test_a_host_with_gpus_is_refused() -> None:
    with pytest.raises(DeviceError, match="the host has 8 GPUs; launch without --cuda-on-cpu"):
        cuda_on_cpu.check(REQUESTED, gpus=8)
    cuda_on_cpu.check({}, gpus=8)


def test_missing_package_is_named(host: Host, tmp_path: Path) -> None:
    """On a Python without packages, to which the packages are added one by one."""
    host.python = str(Path(sys.base_prefix) / "bin" / "python3")
    host.job("print('started')")
    path = f"{host.environ()['PYTHONPATH']}:{tmp_path}"

    def refusal() -> str:
        assert host.run(**REQUESTED, PYTHONPATH=path) != 0
        return failure(host)

    assert "torch is not installed" in refusal()
    (tmp_path / "torch.py").write_text("")
    assert "smdp-engine, which provides the emulation, is not installed" in refusal()
    (tmp_path / "smdp_engine").mkdir()
    (tmp_path / "smdp_engine" / "__init__.py").write_text("")
    assert "the installed smdp-engine is too old for it; run pip install ./native" in refusal()
