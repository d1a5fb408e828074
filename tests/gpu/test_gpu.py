"""Tests that need a GPU. Several ranks may share one; without a GPU each test is skipped with the reason."""

from __future__ import annotations

import json
import subprocess
import sys

import device_cases
import pytest
import ranks

pytestmark = pytest.mark.torch

QUERY = """
import json, torch
print(json.dumps([torch.__version__, torch.version.cuda, torch.cuda.device_count()]))
"""

CASES = {
    **device_cases.CASES,
    "all ranks see infinities": """
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(torch.nn.Linear(8, 8).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scale = {"init_scale": 2.0**16}
newer = hasattr(torch.amp, "GradScaler")  # torch 2.3
scaler = torch.amp.GradScaler("cuda", **scale) if newer else torch.cuda.amp.GradScaler(**scale)
for step in range(6):
    torch.manual_seed(10 * step + rank)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.randn(4, 8, device=device)).float().square().mean()
        if step == 2 and rank == 1: loss = loss * float("inf")
    optimizer.zero_grad(); scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
    scales = [None] * size; dist.all_gather_object(scales, scaler.get_scale())
    assert len(set(scales)) == 1, scales
    assert scales[0] == 2.0 ** (16 if step < 2 else 15), (step, scales)
weights = [torch.empty_like(model.module.weight) for _ in range(size)]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(weights[0], one) for one in weights)
""",
}


@pytest.fixture(scope="module")
def outcomes() -> list[ranks.Outcome]:
    """The outcomes of the ranks of one job."""
    answer = subprocess.run([sys.executable, "-c", QUERY], check=True, capture_output=True, text=True, timeout=240)
    torch, cuda, devices = json.loads(answer.stdout)
    if devices == 0:
        pytest.skip(f"no GPU: torch {torch}, built for {'CUDA ' + cuda if cuda else 'no CUDA'}, sees none")
    return device_cases.job(device_cases.CUDA, CASES)


@pytest.mark.parametrize("name", CASES)
def test_cuda_tensors(name: str, outcomes: list[ranks.Outcome]) -> None:
    device_cases.passed(name, outcomes)
