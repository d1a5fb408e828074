"""Every torch worker is measured without a change to its script, and its events are accepted from it alone."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from entrypoint_support.host import Host

HAS_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("smdp_engine") is not None
pytestmark = [pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="torch and smdp-engine are not installed")]

# The loader's worker is spawned: it imports torch, and with it `sitecustomize`, anew.
TRAINS = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.ones(3)

if __name__ == "__main__":
    torch.distributed.init_process_group("smddp")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for options in ({}, {"num_workers": 1, "multiprocessing_context": "spawn"}):
        for batch in DataLoader(Slow(), batch_size=4, **options):
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.distributed.destroy_process_group()
    print("trained")
"""


def events(host: Host, rank: int, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in host.of_rank(rank) if line.startswith('{"smdp_event":')]
    return [line for line in lines if line["event"] == name]


def test_script_without_a_change_is_measured(host: Host) -> None:
    host.job(TRAINS, sagemaker_distributed_dataparallel_enabled=True)
    assert host.run(SMDP_WORKERS_PER_HOST="2") == 0, host.text
    for rank in (0, 1):
        measured = events(host, rank, "timing")
        for event in measured:
            phases = ("input", "copy", "forward", "backward", "exchange", "optimizer", "checkpoint", "logging")
            seconds = [event[f"{name}_s"] for name in (*phases, "evaluation", "other")]
            assert sum(seconds) == pytest.approx(event["window"], abs=1e-6)
            assert event["rank"] == rank
        total = {name: sum(event[name] for event in measured) for name in measured[0] if name != "event"}
        assert (total["steps"], total["batches"], total["samples"], total["load_batches"]) == (6, 6, 24, 6)
        assert total["input_s"] >= 3 * 0.02  # without workers it is all the time of the dataset
        assert total["load_s"] >= 6 * 0.02
        assert min(total["forward_s"], total["backward_s"], total["exchange_s"], total["optimizer_s"]) > 0
        assert measured[-1]["load_workers"] == 1
        counters = events(host, rank, "engine")
        assert sum(event["operations"] for event in counters) >= 6


@pytest.mark.runs
def test_measurement_can_be_turned_off(host: Host) -> None:
    host.job(TRAINS, sagemaker_distributed_dataparallel_enabled=True)
    assert host.run(SMDP_TIMING_S="0") == 0, host.text
    assert host.of_rank(0).count("trained") == 1
    assert not [line for line in host.lines if '"timing"' in line or '"engine"' in line]


def test_setting_that_is_no_number_does_not_end_the_job(host: Host) -> None:
    host.job("import torch; print('ran', print.__class__.__name__)", sagemaker_distributed_dataparallel_enabled=True)
    assert host.run(SMDP_TIMING_S="often") == 0, host.text
    assert "ran builtin_function_or_method" in host.of_rank(0)
    said = "smdp: this rank is not measured: ValueError: SMDP_TIMING_S must be a number of seconds, found 'often'"
    assert said in host.of_rank(0)
