"""Runs sums, copies and a training step under compute-sanitizer, and counts its reports.

memcheck finds accesses outside of allocated memory; racecheck finds races in shared memory of a kernel; initcheck is
not used, because the buffers of torch are not initialized. torch's cache of GPU memory is turned off, so that memcheck
sees each tensor.

Example: ``python native/benchmarks/gpu/sanitizer.py``
"""

import argparse
import os
import re
import shutil
import sys
from pathlib import Path
from typing import List, Optional

import figures
import job

LIMIT_S = 300
TOOLS = ("memcheck", "racecheck")
_SUMMARY = re.compile(r"^========= (?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", re.MULTILINE)


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--tools", default=",".join(TOOLS))
    return job.parsed(parser)


def work(arguments: argparse.Namespace) -> None:
    import device
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import smdp_engine.torch  # noqa: F401 - registers the backend

    gpu = device.this_gpu(arguments.device)
    dist.init_process_group("smddp")
    rank, world = dist.get_rank(), dist.get_world_size()
    sums = []
    for count in (1, 1000, 2_500_000):
        values = torch.full((count,), float(rank + 1), device=gpu)
        dist.all_reduce(values)
        sums.append(values[-1].item())
        dist.broadcast(values, src=0)
        everything = torch.empty(world * count, device=gpu)
        dist.all_gather_into_tensor(everything, values)
        part = torch.empty(count, device=gpu)
        dist.reduce_scatter_tensor(part, everything)
    model = DistributedDataParallel(torch.nn.Linear(300, 300).to(gpu), bucket_cap_mb=0.01)
    model(torch.ones(4, 300, device=gpu)).sum().backward()
    torch.cuda.synchronize()
    job.report(sums=sums)
    dist.destroy_process_group()


def found_at() -> Optional[str]:
    """The path of compute-sanitizer: on PATH, or in the CUDA toolkit, whose programs are not always there."""
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    return shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path=str(toolkit / "bin"))


def errors_in(output: str) -> int:
    """The errors in the summaries of compute-sanitizer.

    Raises:
        JobFailedError: there is no summary.
    """
    counts = [int(errors or hazards) for errors, hazards in _SUMMARY.findall(output)]
    if not counts:
        raise job.JobFailedError("compute-sanitizer wrote no summary:\n" + "\n".join(output.splitlines()[-10:]))
    return sum(counts)


def measure(arguments: argparse.Namespace) -> List[figures.Figure]:
    found = []
    path = found_at()
    for tool in arguments.tools.split(","):
        name = f"errors that compute-sanitizer's {tool} reports"
        if path is None:
            found.append(figures.not_run(name, "compute-sanitizer is not installed (it is part of the CUDA toolkit)"))
            continue
        program = [sys.executable, str(job.HERE / "sanitizer.py"), "--device", arguments.device]
        # Calls that return an error are no reports: cudaEventQuery() does for each event that has not passed yet.
        command = [path, "--tool", tool, "--target-processes", "all", "--report-api-errors", "no", *program]
        settings = {**job.options(arguments), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        sys.stderr.write(f"compute-sanitizer --tool {tool}: 1+1 ranks\n")
        ended = job.ranks([1, 1], command, limit_s=LIMIT_S, environment=settings)
        job.failed(ended, tool, LIMIT_S)
        errors = sum(errors_in(one.out + one.err) for one in ended)
        wrong = [one.report for one in ended if one.report != {"sums": [3.0, 3.0, 3.0]}]
        if wrong:
            raise job.JobFailedError(f"{tool}: wrong sums: {wrong}")
        found.append(figures.Figure(name, errors, at_most=0, note="sums, copies and a step of DDP, 2 ranks"))
    return found


if __name__ == "__main__":
    sys.exit(job.main(parse(), work, measure))
