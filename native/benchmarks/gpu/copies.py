"""Compares the copies of an exchanged bucket with plain copies between pinned memory and the GPU.

First each rank copies a bucket alone, from and to pinned memory (``cudaMemcpyAsync``), and times it by the GPU's clock.
Then the ranks sum buckets, and torch's profiler records every copy with its bytes and its duration. The rate of an
exchange is the bytes of its copies over their durations: gaps in which nothing is copied, because the exchange waits
for the network, do not count. With one rank nothing else uses the bus.

Example: ``python native/benchmarks/gpu/copies.py``
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

import figures
import job

SHARE = 0.90
LIMIT_S = 200
TO_HOST, TO_DEVICE = "to the host", "to the GPU"


class Copies(NamedTuple):
    bytes: int
    seconds: float
    pageable: int

    @property
    def rate(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--mib", type=float, default=25, help="MiB of a bucket")
    parser.add_argument("--times", type=int, default=20)
    return job.parsed(parser)


def copies_of(trace: Dict[str, Any], at_least: int) -> Dict[str, Copies]:
    """The copies between host and GPU of ``at_least`` bytes in a trace of torch's profiler."""
    found = {TO_HOST: Copies(0, 0.0, 0), TO_DEVICE: Copies(0, 0.0, 0)}
    for event in trace["traceEvents"]:
        name, size = event.get("name", ""), event.get("args", {}).get("bytes", 0)
        where = TO_HOST if "DtoH" in name else TO_DEVICE if "HtoD" in name else ""
        if event.get("cat") == "gpu_memcpy" and where and size >= at_least:
            one = found[where]
            pageable = one.pageable + (size if "Pageable" in name else 0)
            found[where] = Copies(one.bytes + size, one.seconds + event["dur"] / 1e6, pageable)
    return found


def exchange(arguments: argparse.Namespace) -> None:
    import device
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile

    import smdp_engine.torch  # noqa: F401 - registers the backend

    gpu = device.this_gpu(arguments.device)
    dist.init_process_group("smddp")
    count = int(arguments.mib * (1 << 20)) // 4
    bucket = torch.full((count,), float(dist.get_rank() + 1), device=gpu)
    pinned = torch.empty(count).pin_memory()
    alone = {}
    for turn in range(dist.get_world_size()):
        dist.barrier()
        if turn == dist.get_rank():
            to_host = device.timed_ms(lambda: pinned.copy_(bucket, non_blocking=True), arguments.times)
            to_device = device.timed_ms(lambda: bucket.copy_(pinned, non_blocking=True), arguments.times)
            alone = {TO_HOST: device.median(to_host), TO_DEVICE: device.median(to_device)}
        dist.barrier()
    for _ in range(3):
        dist.all_reduce(bucket)
        bucket.fill_(1.0)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        for _ in range(arguments.times):
            dist.all_reduce(bucket)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        trace = json.loads(path.read_text(encoding="utf-8"))
    expected = float(dist.get_world_size()) ** arguments.times
    correct = bool((bucket == expected).all())
    job.report(alone_ms=alone, copies=copies_of(trace, 1 << 16), bytes=4 * count, correct=correct)
    dist.barrier()
    dist.destroy_process_group()


def of_reports(reports: List[Dict[str, Any]], name: str, has_bar: bool) -> List[figures.Figure]:
    found = []
    for where in (TO_HOST, TO_DEVICE):
        alone = sum(one["bytes"] / one["alone_ms"][where] / 1e6 for one in reports) / len(reports)
        copies = [Copies(*one["copies"][where]) for one in reports]
        what = f"copies of a bucket {where}, {name}: share of the rate of a pinned copy alone"
        if not all(one.bytes for one in copies):
            found.append(figures.not_run(what, f"the profiler recorded no copies; alone {alone:.1f} GB/s"))
            continue
        rate = sum(one.rate for one in copies) / len(copies) / 1e9
        note = f"{rate:.1f} of {alone:.1f} GB/s, {sum(one.bytes for one in copies) / 1e6:.0f} MB copied"
        found.append(figures.Figure(what, rate / alone, at_least=SHARE if has_bar else None, note=note))
        pageable = sum(one.pageable for one in copies)
        what = f"bytes of a bucket {where} through memory that is not pinned, {name}"
        found.append(figures.Figure(what, pageable, "B", at_most=0))
    wrong = sum(not one["correct"] for one in reports)
    found.append(figures.Figure(f"ranks with a wrong sum, {name}", wrong, at_most=0))
    return found


def measure(arguments: argparse.Namespace) -> List[figures.Figure]:
    mib = 1.0 if arguments.small else arguments.mib
    command = ["--device", arguments.device, "--mib", str(mib), "--times", str(3 if arguments.small else 20)]
    found = []
    for hosts, name, has_bar in (([1], "1 rank", True), ([1, 1], "2 hosts on one bus", False)):
        reports = job.reports("copies.py", hosts, command, limit_s=LIMIT_S, environment=job.options(arguments))
        found += of_reports(reports, f"{name}, {mib:g} MiB", has_bar)
    return found


if __name__ == "__main__":
    sys.exit(job.main(parse(), exchange, measure))
