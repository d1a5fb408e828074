"""Ranks of a training job that stop in computing, in a collective and in a worker of the loader."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Callable

import pytest
from entrypoint_support.host import Host, hosts_file, reserve_port

HAS_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("smdp_engine") is not None
pytestmark = [pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="torch and smdp-engine are not installed")]

TRAINS = """
import os, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

where, rank = os.environ["WHERE"], int(os.environ["RANK"])

def stop():
    while True:
        time.sleep(0.5)

class Samples(Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        if where == "loader" and rank == 1 and index == 400:
            stop()
        return torch.ones(3)

def compute(step):
    if rank == 1 and step == 60:
        if where == "computing":
            stop()
        if where == "collective":
            dist.recv(torch.zeros(1), src=0)

if __name__ == "__main__":
    dist.init_process_group(os.environ["BACKEND"])
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step, batch in enumerate(DataLoader(Samples(), batch_size=4, num_workers=2)):
        compute(step)
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
"""
# What the first line of the failure says, and a frame of the stack below it.
EXPECTED = {
    "computing": ("it is in forward at stop (train.py:", "in stop"),
    "collective": ("it waits in recv at compute (train.py:", "in recv"),
    "loader": ("it waits for its loader, whose worker is at stop (train.py:", "in __getitem__"),
}


@pytest.mark.runs
@pytest.mark.parametrize("backend", ["smddp", "gloo"])
@pytest.mark.parametrize("where", EXPECTED)
def test_rank_that_stops_is_named_with_its_stack(
    cluster: Callable[[list[str]], list[Host]], tmp_path: Path, where: str, backend: str
) -> None:
    names = ["algo-1", "algo-2"]
    file = hosts_file(tmp_path / "hosts", names)
    hosts = cluster(names)
    with reserve_port() as port:
        for one in hosts:
            one.job(TRAINS, sagemaker_distributed_dataparallel_enabled=True).start(
                SMDP_HOSTS_FILE=file,
                SMDP_MASTER_PORT=str(port.getsockname()[1]),
                SMDP_WORKERS_PER_HOST="2",
                SMDP_TIMING_S="0.2",
                SMDP_HANG="end",
                SMDP_HANG_AFTER_S="3",
                WHERE=where,
                BACKEND=backend,
            )
        codes = [one.wait() for one in hosts]
    assert codes == [1, 1], hosts[0].text
    doing, frame = EXPECTED[where]
    for one in hosts:
        first, *stack = one.failure.splitlines()
        assert first.startswith("hang: rank 1 on algo-1 has made no progress for"), one.text
        assert doing in first
        assert any(frame in line for line in stack)
    for one, ranks in zip(hosts, ([0, 1], [2, 3])):
        (event,) = [event for event in one.events("hang") if event["what"] == "reported"]
        assert [state["rank"] for state in event["ranks"]] == ranks
        for rank in ranks:
            assert any(line.endswith("):") and f"rank {rank} (process" in line for line in one.lines)
        print(f"{where}, {backend}: {one.host} reported after {max(state['idle_s'] for state in event['ranks'])} s")
