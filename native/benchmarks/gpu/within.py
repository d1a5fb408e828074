"""Sums within the host first, on its GPUs, beside sums in the host's shared memory: the values and the time of a sum.

With at least two GPUs the ranks of a host sum with NCCL, and each rank has a GPU of its own: 2 hosts with four GPUs or
more, else one. With one GPU, NCCL cannot connect the ranks that share it. The engine itself then takes NCCL's place:
this shows that the sums are right, and its time says nothing about NCCL's.

Example: ``python native/benchmarks/gpu/within.py``
"""

import argparse
import statistics
import sys
import time
from typing import Any, Dict, List, Tuple

import figures
import job

LIMIT_S = 200
SHARED_MEMORY = "shm"


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--mib", type=float, default=25, help="MiB of a bucket")
    parser.add_argument("--buckets", type=int, default=8, help="buckets that are summed at the same time")
    parser.add_argument("--rounds", type=int, default=9)
    return job.parsed(parser)


def layout(gpus: int) -> Tuple[List[int], str]:
    """The ranks of each host, and the reducer that sums within a host."""
    if gpus >= 4:
        return [min(8, gpus) // 2] * 2, "nccl"
    return ([gpus], "nccl") if gpus >= 2 else ([2, 2], "smddp")


def work(arguments: argparse.Namespace) -> None:
    import device
    import torch
    import torch.distributed as dist

    import smdp_engine.torch  # noqa: F401 - registers the backend

    gpu = device.this_gpu(arguments.device, every_rank_its_own=True)
    dist.init_process_group("smddp")
    rank, world = dist.get_rank(), dist.get_world_size()
    # Whole numbers, so that every order of sums has the same bits. A bucket has one element more than the last.
    counts = [int(arguments.mib * (1 << 20)) // 4 + index for index in range(arguments.buckets)]
    buckets = [torch.empty(count, device=gpu) for count in counts]
    took, wrong = [], 0
    for turn in range(arguments.rounds + 2):
        for index, bucket in enumerate(buckets):
            bucket.fill_(float(1 + rank + index + turn))
        torch.cuda.synchronize()
        dist.barrier()
        began = time.perf_counter()
        works = [dist.all_reduce(bucket, async_op=True) for bucket in buckets]
        for one in works:
            one.wait()
        torch.cuda.synchronize()
        took.append(1e3 * (time.perf_counter() - began))
        for index, bucket in enumerate(buckets):
            wanted = world * (1 + index + turn) + sum(range(world))
            wrong += int((bucket != wanted).sum())
    job.report(ms=took[2:], wrong=wrong)  # the first two create what later ones use
    dist.barrier()
    dist.destroy_process_group()


def of_reports(reports: Dict[str, List[Dict[str, Any]]], reducer: str, name: str) -> List[figures.Figure]:
    wrong = sum(one["wrong"] for one in reports[reducer])
    found = [figures.Figure(f"elements with a wrong sum, {reducer} within the host, {name}", wrong, at_most=0)]
    # Of each round the slowest rank.
    times = {
        one: statistics.median(max(column) for column in zip(*(report["ms"] for report in of_one)))
        for one, of_one in reports.items()
    }
    note = f"{times[reducer]:.1f} ms, {SHARED_MEMORY} {times[SHARED_MEMORY]:.1f} ms"
    what = f"time of sums, {reducer} within the host / {SHARED_MEMORY}, {name}"
    found.append(figures.Figure(what, times[reducer] / times[SHARED_MEMORY], note=note))
    return found


def measure(arguments: argparse.Namespace) -> List[figures.Figure]:
    import torch

    hosts, reducer = layout(torch.cuda.device_count() if arguments.device == "cuda" else 0)
    mib, buckets, rounds = (1.0, 4, 3) if arguments.small else (arguments.mib, arguments.buckets, arguments.rounds)
    command = ["--device", arguments.device, "--mib", str(mib), "--buckets", str(buckets), "--rounds", str(rounds)]
    reports = {}
    for one in (SHARED_MEMORY, reducer):
        environment = {**job.options(arguments), "SMDP_LOCAL_REDUCER": one}
        reports[one] = job.reports("within.py", hosts, command, limit_s=LIMIT_S, environment=environment)
    name = f"{'+'.join(map(str, hosts))} ranks, {buckets} buckets of {mib:g} MiB"
    found = of_reports(reports, reducer, name)
    if reducer != "nccl":
        found.append(figures.not_run("time of sums, nccl within the host / shm", "NCCL needs a GPU for each rank"))
    return found


if __name__ == "__main__":
    sys.exit(job.main(parse(), work, measure))
