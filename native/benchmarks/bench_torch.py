"""Times a torch.distributed backend as bench.h times the others: the same cases, data, clock and report.

Backend "deepspeed" is the shared-memory all_reduce of the deepspeed package, compiled from its sources; Gloo then only
makes the barriers.

usage: bench_torch.py CASE:ITERATIONS,... DTYPE BACKEND
"""

import importlib.util
import json
import os
import re
import resource
import sys
import time
import typing
import zlib
from pathlib import Path

import torch
import torch.distributed as dist

PAUSE_S = 0.02
PART = 1 << 22  # the number of elements generated at a time: the models of many ranks must fit into one machine
AllReduce = typing.Callable[[torch.Tensor], object]


def values(rank: int, begin: int, end: int) -> torch.Tensor:
    """The values of the elements from ``begin`` to ``end``."""
    index = torch.arange(begin, end, dtype=torch.int64)
    return ((index * 2654435761 + rank * 40503) >> 7).to(torch.int32) % 9 - 4


def parts(count: int) -> "list[tuple[int, int]]":
    return [(begin, min(begin + PART, count)) for begin in range(0, count, PART)]


def own_values(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    made = torch.empty(count, dtype=dtype)
    for begin, end in parts(count):
        made[begin:end] = values(rank, begin, end).to(dtype)
    return made


def is_sum(data: torch.Tensor, rank: int, world: int) -> bool:
    """Each rank checks a share of a model's parts, since checking everything would take longer than the sums. The
    reports' checksums show that the ranks have the same bits, so all parts are checked."""
    shares = parts(data.numel())
    return all(
        bool((data[begin:end] == sum(values(each, begin, end) for each in range(world)).to(data.dtype)).all())  # type: ignore[union-attr]
        for begin, end in (shares[rank::world] if len(shares) > world else shares)
    )


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def pss_kib() -> int:
    found = re.search(r"^Pss:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) if found else -1


def read_buckets(case: str) -> "list[tuple[int, float]]":
    """Bytes, and the seconds until they are ready; one bucket for a case that is not a file."""
    if not case.startswith("@"):
        return [(int(case), 0.0)]
    lines = (line.split() for line in Path(case[1:]).read_text().splitlines())
    return [(int(size), int(ready_us) / 1e6) for size, ready_us in lines]


def sum_buckets(data: torch.Tensor, buckets: "list[tuple[int, float]]", all_reduce: AllReduce) -> None:
    if len(buckets) == 1:
        all_reduce(data)
        return
    began, at, works = time.perf_counter(), 0, []
    for size, ready_s in buckets:
        time.sleep(max(0.0, began + ready_s - time.perf_counter()))
        count = size // data.element_size()
        works.append(dist.all_reduce(data[at : at + count], async_op=True))
        at += count
    for work in works:
        work.wait()


def deepspeed_all_reduce() -> AllReduce:
    from torch.utils import cpp_extension

    package = importlib.util.find_spec("deepspeed")
    assert package is not None and package.submodule_search_locations is not None
    sources = Path(package.submodule_search_locations[0]) / "ops" / "csrc" / "cpu"
    module = cpp_extension.load(
        "deepspeed_shm",
        [str(sources / "comm" / name) for name in ("shm_interface.cpp", "shm.cpp")],
        extra_include_paths=[str(sources / "includes")],
        extra_cflags=["-O2", "-fopenmp"],
    )
    os.environ["LOCAL_SIZE"] = str(dist.get_world_size())
    module.initialize(dist.get_world_size(), dist.get_rank())
    return typing.cast(AllReduce, torch.ops.deepspeed.inference_all_reduce_)


def run_case(case: str, iterations: int, dtype: torch.dtype, all_reduce: AllReduce) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    buckets = read_buckets(case)
    size = sum(bucket[0] for bucket in buckets)
    original = own_values(rank, size // dtype.itemsize, dtype)
    data = torch.empty_like(original)
    seconds, cpu = [], 0.0
    warm_up = 2 + iterations // 10 if len(buckets) == 1 else 1
    for i in range(-warm_up, iterations):
        data.copy_(original)
        dist.barrier()
        cpu_before, began = cpu_seconds(), time.perf_counter()
        sum_buckets(data, buckets, all_reduce)
        took = time.perf_counter() - began
        if i >= 0:
            seconds.append(took)
            cpu += cpu_seconds() - cpu_before
        time.sleep(PAUSE_S)
    pss = pss_kib()
    report = {
        "rank": rank,
        "bytes": size,
        "cpu_s": cpu,
        "sums": warm_up + iterations,
        "pss_kib": pss,
        "correct": is_sum(data, rank, world),
        "checksum": zlib.crc32(data.view(torch.uint8).numpy()),
        "seconds": seconds,
    }
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def main() -> None:
    cases, dtype, backend = sys.argv[1:]
    torch.set_num_threads(1)
    if backend == "smddp":
        import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401
    dist.init_process_group("gloo" if backend == "deepspeed" else backend)
    all_reduce = deepspeed_all_reduce() if backend == "deepspeed" else dist.all_reduce
    for case in cases.split(","):
        what, iterations = case.rsplit(":", 1)
        run_case(what, int(iterations), getattr(torch, dtype), all_reduce)
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads sometimes abort the interpreter at its exit


main()
