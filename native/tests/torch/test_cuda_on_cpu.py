"""The CUDA emulation on the CPU: single features (cuda_*_cases.py), and between ranks."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict

import pytest
import ranks

pytestmark = [pytest.mark.torch, pytest.mark.runs]
SUPPORT = Path(__file__).parents[1] / "support"
PROGRAMS = [SUPPORT / "cuda_tensor_cases.py", SUPPORT / "cuda_library_cases.py"]
NAMES = [name for program in PROGRAMS for name in re.findall(r"^def ([a-z]\w*)\(", program.read_text(), re.MULTILINE)]
INSTALL = "from smdp_engine import cuda_on_cpu\ncuda_on_cpu.install()\n"


def python(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "2", **environ}
    return subprocess.run(
        [sys.executable, *arguments], env=settings, check=False, capture_output=True, text=True, timeout=200
    )


@pytest.fixture(scope="module")
def errors() -> Dict[str, str]:
    """The error of each case. The cases of a program share a process, since importing torch takes longer than all of
    them."""
    outcomes = []
    for program in PROGRAMS:
        ran = python(str(program))
        assert ran.returncode == 0, ran.stderr
        outcomes += [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"case"')]
    return {outcome["case"]: outcome["error"] for outcome in outcomes}


@pytest.mark.parametrize("name", NAMES)
def test_cuda_emulation(name: str, errors: Dict[str, str]) -> None:
    assert errors[name] == ""


@pytest.mark.runs
def test_emulation_is_reported_once() -> None:
    line = "smdp: CUDA is emulated on the CPU; for its limits see docs/how-to/cuda-on-cpu.md\n"
    again = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', sys.argv[1]], check=True)\n"
    assert python("-c", INSTALL + again, INSTALL).stderr == line
    assert python("-c", INSTALL, RANK="1").stderr == ""


def test_a_host_with_a_gpu_is_refused() -> None:
    """A fake GPU that torch reports."""
    seen = "import torch\ntorch.cuda.is_available, torch.cuda.device_count = lambda: True, lambda: 8\n"
    ran = python("-c", seen + INSTALL)
    assert ran.returncode == 1
    assert "--cuda-on-cpu is for hosts without a GPU, this host has 8: launch without it" in ran.stderr


def test_ranks_that_ask_for_nccl_exchange_on_the_engine() -> None:
    body = """
        dist.init_process_group("nccl", pg_options=None, device_id=torch.device("cuda", 0))
        assert dist.get_backend() == "nccl"
        assert dist.distributed_c10d.get_backend() == "smddp"
        ours = torch.full((5,), float(rank + 1), device="cuda")
        dist.all_reduce(ours)
        assert ours.tolist() == [3.0] * 5
        half = dist.new_group([rank], backend="nccl")
        dist.barrier(group=half, device_ids=[0])
        parts = [torch.empty(2, device="cuda") for _ in range(size)]
        dist.all_gather(parts, torch.full((2,), float(rank), device="cuda"))
        assert [one[0].item() for one in parts] == [0.0, 1.0]
        dist.destroy_process_group()
        """
    ranks.run([1, 1], INSTALL.replace("\n", "\n        ").join(["        ", body.lstrip("\n").lstrip()]))


def test_sync_batch_norm_equals_one_process() -> None:
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


def test_fsdp_shards_on_the_gpu_of_each_rank() -> None:
    """The first version of FullyShardedDataParallel, against one process with the global batch."""
    body = """
        from torch import nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy as Strategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        dist.init_process_group("nccl")
        gpu = rank % 2
        torch.cuda.set_device(gpu)
        batch = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
        policy = ModuleWrapPolicy({nn.Linear})

        def network(seed):
            torch.manual_seed(seed)
            return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

        def trained(model, batch):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                model(batch).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            return model(batch)

        def sharded(model, **settings):
            model = FSDP(model, **settings)
            assert model.compute_device.type == "cpu"
            output = trained(model, batch[rank : rank + 1].cuda())
            assert output.get_device() == gpu
            torch.testing.assert_close(output.cpu(), expected[rank : rank + 1])

        expected = trained(network(0), batch)
        sharded(network(0), device_id=gpu, auto_wrap_policy=policy, use_orig_params=True)
        sharded(network(0).cuda())
        sharded(network(rank), device_id=torch.device("cuda", gpu), sync_module_states=True)
        sharded(network(0), device_id=gpu, auto_wrap_policy=policy, sharding_strategy=Strategy.HYBRID_SHARD)
        for model, settings, words in (
            (network(0), {"device_id": 2}, "there is no cuda:2"),
            (network(0), {"sync_module_states": True, "device_id": torch.device("cpu")}, "CPU parameters"),
        ):
            try:
                FSDP(model, **settings)
                raise AssertionError("no error was raised")
            except (RuntimeError, ValueError) as error:
                assert words in str(error), error
        dist.destroy_process_group()
        """
    ranks.run([2, 2], INSTALL.replace("\n", "\n        ").join(["        ", body.lstrip("\n").lstrip()]))
