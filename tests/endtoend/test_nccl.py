"""A script that asks for NCCL trains locally with `--cuda-on-cpu`, unchanged, as a job with `engine: nccl`."""

from __future__ import annotations

import re

import pytest

from smdp_launch.errors import ExitCode
from tests.endtoend.conftest import Job
from tests.support.jobs.local import launch

pytestmark = pytest.mark.torch

SCRIPT = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

assert torch.cuda.is_available()
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    model(torch.full((3, 4), float(dist.get_rank() + step)).cuda()).pow(2).mean().backward()
    optimizer.step()
weights = [torch.empty_like(model.module.weight) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.detach())
print("backend", dist.get_backend(), "equal", all(torch.equal(one, weights[0]) for one in weights))
dist.destroy_process_group()
"""
NCCL = (("engine: native", "engine: nccl"), ("ml.p4d.24xlarge", "ml.g5.12xlarge"))


def test_nccl_job_trains_on_cpus(job: Job) -> None:
    job.write(SCRIPT, *NCCL)
    ran = launch(job, "--cuda-on-cpu")
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "NCCL: the backend nccl is smdp-engine's smddp" in ran.stdout
    assert len(re.findall(r"^algo-\d:\d \| backend nccl equal True$", ran.stdout, re.MULTILINE)) == 4
    assert len(re.findall("the backend nccl is smdp-engine's smddp on CPUs", ran.stdout)) == 1


@pytest.mark.runs
def test_nccl_job_without_emulation_names_the_flag(job: Job) -> None:
    job.write("print('trained')\n", *NCCL)
    ran = launch(job)
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "--cuda-on-cpu gives it another backend" in ran.stdout
