"""What is left on the GPU after 1,000 process groups were created, used and destroyed.

Example: ``python native/benchmarks/gpu/groups.py --groups 1000``
"""

import argparse
import gc
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import figures
import job

LIMIT_S = 400
#: torch has 32 streams of a priority and a call takes two in turn. The driver gives a stream memory at its first use.
WARM_UP = 40


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--layout", default="1+1")
    return job.parsed(parser)


def state() -> Dict[str, Any]:
    """Bytes on the device, and what the process has."""
    import torch
    import torch.distributed as dist

    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    dist.barrier()  # the GPU's memory counts every rank on it
    free, _total = torch.cuda.mem_get_info()
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "used": _total - free,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }


def use_groups(gpu: Any, count: int) -> None:
    import torch
    import torch.distributed as dist

    for turn in range(count):
        group = dist.new_group()
        values = torch.full((50_000,), float(turn), device=gpu)
        dist.all_reduce(values, group=group)
        assert values[-1].item() == turn * dist.get_world_size(), turn
        dist.destroy_process_group(group)


def run(arguments: argparse.Namespace) -> None:
    import device
    import torch.distributed as dist

    import smdp_engine.torch  # noqa: F401 - registers the backend

    gpu = device.this_gpu(arguments.device)
    dist.init_process_group("smddp")
    use_groups(gpu, WARM_UP)
    dist.barrier()
    before = state()
    dist.barrier()
    began = time.perf_counter()
    use_groups(gpu, arguments.groups)
    took = time.perf_counter() - began
    dist.barrier()
    after = state()
    job.report(before=before, after=after, seconds=took)
    dist.barrier()
    dist.destroy_process_group()


def of_reports(found: List[Dict[str, Any]], groups: int, kind: str) -> List[figures.Figure]:
    left = {name: max(one["after"][name] - one["before"][name] for one in found) for name in found[0]["before"]}
    rows = [
        figures.Figure(f"bytes of tensors on the GPU after {groups} groups", left["allocated"], "B", at_most=0),
        figures.Figure(f"bytes that torch keeps on the GPU after {groups} groups", left["reserved"], "B", at_most=0),
    ]
    what = f"bytes used on the whole GPU after {groups} groups"
    if kind == "cuda":
        note = "as the driver counts, all processes together"
        rows.append(figures.Figure(what, left["used"], "B", at_most=0, note=note))
    else:
        rows.append(figures.not_run(what, "the emulation has the memory of the host"))
    seconds = max(one["seconds"] for one in found)
    rows.append(figures.Figure(f"file descriptors left after {groups} groups", left["descriptors"], at_most=0))
    rows.append(figures.Figure(f"threads left after {groups} groups", left["threads"], at_most=0))
    rows.append(figures.Figure("time of a group: created, used, destroyed", 1e3 * seconds / groups, "ms"))
    return rows


def measure(arguments: argparse.Namespace) -> List[figures.Figure]:
    groups = 20 if arguments.small else arguments.groups
    command = ["--device", arguments.device, "--groups", str(groups)]
    found = job.reports(
        "groups.py", job.layout(arguments.layout), command, limit_s=LIMIT_S, environment=job.options(arguments)
    )
    return of_reports(found, groups, arguments.device)


if __name__ == "__main__":
    sys.exit(job.main(parse(), run, measure))
