"""CUDA imitated on the CPU, piece by piece (cuda_cases.py), and between ranks."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest
import ranks

pytestmark = pytest.mark.torch
CASES = Path(__file__).with_name("cuda_cases.py")
NAMES = re.findall(r"^def ([a-z]\w*)\(", CASES.read_text(), re.MULTILINE)
INSTALL = "from smdp_engine import cuda_on_cpu\ncuda_on_cpu.install()\n"


def python(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "2", **environ}
    return subprocess.run(
        [sys.executable, *arguments], env=settings, check=False, capture_output=True, text=True, timeout=200
    )


@pytest.fixture(scope="module")
def errors() -> Dict[str, str]:
    """Of each case; they share a process, since to import torch takes longer than all of them."""
    ran = python(str(CASES))
    told = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"case"')]
    assert ran.returncode == 0, ran.stderr
    return {one["case"]: one["error"] for one in told}


@pytest.mark.parametrize("name", [one for one in NAMES if one != "main"])
def test_it(name: str, errors: Dict[str, str]) -> None:
    assert errors[name] == ""


@pytest.mark.runs
def test_it_is_said_once() -> None:
    line = "smdp: CUDA is imitated on the CPU; what that leaves out: docs/cuda-on-cpu.md\n"
    again = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]], check=True)\n"
    assert python("-c", INSTALL + again, INSTALL).stderr == line
    assert python("-c", INSTALL, RANK="1").stderr == ""


def test_a_host_with_a_gpu_is_refused() -> None:
    """A GPU that torch would see, which no machine of ours has."""
    seen = "import torch\ntorch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 8\n"
    ran = python("-c", seen + INSTALL)
    assert ran.returncode == 1
    assert "--cuda-on-cpu is for hosts without a GPU, and this one has 8: launch without it" in ran.stderr


def test_batches_are_normalized_over_all_ranks_as_in_one_process() -> None:
    body = """
        from torch import nn
        dist.init_process_group("smddp", device_id=torch.device("cuda", 0))
        torch.manual_seed(0)
        whole, factors = torch.randn(2, 8, 3, 4, 4, dtype=torch.double)
        alone, x = nn.BatchNorm2d(3).double(), whole.clone().requires_grad_()
        (alone(x) * factors).sum().backward()
        part = slice(0, 5) if rank == 0 else slice(5, 8)
        model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(3))).double().cuda()
        model = nn.parallel.DistributedDataParallel(model, device_ids=[0], output_device=0)
        y = whole[part].cuda().requires_grad_()
        (model(y) * factors[part].cuda()).sum().backward()
        norm = model.module[0]
        torch.testing.assert_close(y.grad, x.grad[part])
        torch.testing.assert_close(norm.weight.grad * size, alone.weight.grad)
        torch.testing.assert_close(norm.running_var, alone.running_var)
        torch.testing.assert_close(norm.running_mean, alone.running_mean)
        dist.barrier(device_ids=[0])
        model.eval()(y)
        found = [None, None]
        dist.all_gather_object(found, rank)
        assert found == [0, 1]
        dist.destroy_process_group()
        """
    ranks.run([1, 1], INSTALL.replace("\n", "\n        ").join(["        ", body.lstrip("\n").lstrip()]))
