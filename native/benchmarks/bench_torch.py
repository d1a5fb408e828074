"""A torch.distributed backend, timed as bench.h times the others: the same cases, data, clock and report.

usage: bench_torch.py BYTES:ITERATIONS,... DTYPE BACKEND
"""

import json
import os
import re
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


PAUSE_S = 0.02


def values(rank: int, count: int) -> torch.Tensor:
    index = torch.arange(count, dtype=torch.int64)
    return ((index * 2654435761 + rank * 40503) >> 7).to(torch.int32) % 9 - 4


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def pss_kib() -> int:
    found = re.search(r"^Pss:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) if found else -1


def run_case(size: int, iterations: int, dtype: torch.dtype) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    original = values(rank, size // dtype.itemsize).to(dtype)
    data = torch.empty_like(original)
    seconds, cpu = [], 0.0
    for i in range(-2 - iterations // 10, iterations):
        data.copy_(original)
        dist.barrier()
        cpu_before, began = cpu_seconds(), time.perf_counter()
        dist.all_reduce(data)
        took = time.perf_counter() - began
        if i >= 0:
            seconds.append(took)
            cpu += cpu_seconds() - cpu_before
        time.sleep(PAUSE_S)
    pss = pss_kib()
    want = sum(values(other, data.numel()) for other in range(world))
    report = {
        "rank": rank,
        "bytes": size,
        "cpu_s": cpu,
        "pss_kib": pss,
        "correct": bool((data == want.to(dtype)).all()),
        "seconds": seconds,
    }
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def main() -> None:
    cases, dtype, backend = sys.argv[1:]
    torch.set_num_threads(1)
    if backend == "smddp":
        import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
    dist.init_process_group(backend)
    for case in cases.split(","):
        size, iterations = case.split(":")
        run_case(int(size), int(iterations), getattr(torch, dtype))
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads now and then abort an interpreter that ends


main()
