"""Two agents of torchrun, which are two hosts to the engine."""

import re
import signal
import subprocess
from pathlib import Path
from typing import List

import pytest
from launching import launched
from ports import free_port

pytestmark = pytest.mark.torch


def _agents(
    folder: Path, script: str, workers: List[int], *options: str, nodes: str = "2"
) -> "List[subprocess.CompletedProcess[str]]":
    """Run the script with an agent for each number of workers. ``nodes``: how many agents the job needs."""
    (folder / "train.py").write_text(script)
    started = []
    for node, count in enumerate(workers):
        own = [one.replace("NODE", str(node)).replace("IS_FIRST", str(node == 0)) for one in options]
        command = [*launched.TORCHRUN, "--nnodes", nodes, *own, "--nproc-per-node", str(count), "train.py"]
        started.append(launched.start(command, folder, SMDP_HOST_ID=f"node-{node}"))
    return [launched.finish(one) for one in started]


@pytest.mark.runs
def test_ranks_of_two_agents_with_different_numbers_sum_over_both_hosts(tmp_path: Path) -> None:
    static = ["--node-rank", "NODE", "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    outcomes = _agents(tmp_path, launched.TRAIN, [1, 2], *static)
    assert [one.returncode for one in outcomes] == [0, 0], outcomes
    lines = [sorted(one.stdout.splitlines()) for one in outcomes]
    assert lines == [["rank 0 of 3, 0 of 1: 6"], ["rank 1 of 3, 0 of 2: 6", "rank 2 of 3, 1 of 2: 6"]]
    named = [one.stderr.count("smdp: backend smddp is smdp-engine") for one in outcomes]
    assert named == [1, 0]


DIES_ONCE = """
import os, signal
import torch, torch.distributed as dist
import smdp_engine.torch
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun may send it before the engine reports the loss
launch = smdp_engine.torch.init()
total = torch.empty(300_000)
for step in range(5):
    total.fill_(launch.rank + 1)
    dist.all_reduce(total)
    if step == 2 and launch.local_world_size == 1 and not os.path.exists("died"):
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
os.write(1, f"rank {launch.rank} of {launch.world_size}: {total[0].item():g}\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.runs
def test_job_resumes_in_next_generation_after_a_worker_dies(tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    elastic = ["--max-restarts", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", place, "--rdzv-id", "elastic"]
    outcomes = _agents(tmp_path, DIES_ONCE, [1, 2], *elastic)
    assert [one.returncode for one in outcomes] == [0, 0], outcomes
    assert (tmp_path / "died").exists()
    lines = sorted("".join(one.stdout for one in outcomes).splitlines())
    assert lines == [f"rank {rank} of 3: 6" for rank in range(3)]
    # The two ranks of the other host had learned which rank of which host was lost.
    errors = re.findall(
        r"smddp: rank \d \(host ([\w-]+)\) was lost.*\[on rank \d \(host ([\w-]+)\)", outcomes[1].stderr
    )
    assert errors == [("node-0", "node-1")] * 2


LOSES_A_HOST = """
import os, signal
import torch, torch.distributed as dist
import smdp_engine.torch
signal.signal(signal.SIGTERM, signal.SIG_IGN)
launch = smdp_engine.torch.init()
total = torch.empty(300_000)
for step in range(5):
    total.fill_(launch.rank + 1)
    dist.all_reduce(total)
    if step == 2 and launch.world_size == 3 and launch.local_world_size == 1:
        os.kill(os.getppid(), signal.SIGKILL)  # its agent
        os.kill(os.getpid(), signal.SIGKILL)
os.write(1, f"rank {launch.rank} of {launch.world_size}: {total[0].item():g}\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.runs
def test_job_continues_on_the_remaining_host_after_a_host_is_lost(tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port()}"
    elastic = ["--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-endpoint", place, "--rdzv-id", "elastic"]
    # Enough time for the agent of the other host to join, which both hosts wait for.
    # The first agent, which remains, serves the rendezvous.
    elastic += ["--rdzv-conf", "last_call_timeout=20,is_host=IS_FIRST"]
    remaining, lost = _agents(tmp_path, LOSES_A_HOST, [2, 1], *elastic, nodes="1:2")
    assert [remaining.returncode, lost.returncode] == [0, -signal.SIGKILL], (remaining, lost)
    assert sorted(remaining.stdout.splitlines()) == ["rank 0 of 2: 3", "rank 1 of 2: 3"]
    assert lost.stdout == ""
    lines = re.findall(r"smddp: rank \d \(host ([\w-]+)\) was lost.*\[on rank \d \(host ([\w-]+)\)", remaining.stderr)
    assert lines == [("node-1", "node-0")] * 2


@pytest.mark.runs
def test_backend_name_works_as_with_any_backend(tmp_path: Path) -> None:
    script = """
import os
import torch, torch.distributed as dist
import smdp_engine.torch
dist.init_process_group("smddp")
total = torch.ones(3)
dist.all_reduce(total)
os.write(1, f"{total.tolist()}\\n".encode())
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(script)
    ran = launched.run([*launched.TORCHRUN, "--standalone", "--nproc-per-node", "2", "train.py"], tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "[2.0, 2.0, 2.0]\n" * 2
