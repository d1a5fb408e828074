"""Injects faults of a GPU: memory that runs out within a bucket, a device error, a killed process, and others.

Each case is one job of two simulated hosts. A case passes if every rank ends in the stated way before its deadline: no
rank waits for a rank that is gone, and an error names the rank and the reason.

Example: ``python native/benchmarks/gpu/faults.py --cases "out of memory in a bucket"``
"""

import argparse
import re
import sys
from dataclasses import dataclass, field
from typing import Dict, List, Optional

import figures
import job

LIMIT_S = 120
KILLED = -9

PREAMBLE = """
import ctypes, datetime, inspect, os, signal, sys
sys.path.insert(0, {here!r})
import device
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import smdp_engine.torch
gpu = device.this_gpu({kind!r})
dist.init_process_group("smddp", timeout=datetime.timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
LARGE = 8_000_000  # elements, more than one bucket of 25 MiB
def summed(values, of=sum(range(1, world + 1))):
    assert bool((values == of).all()), values[:3]
def passed():
    print("passed", flush=True)
"""


@dataclass(frozen=True)
class Case:
    """What the ranks run, and the exit code of each with a pattern in its output.

    A code of None stands for every code of a failure. ``only_cuda``: why the case needs a real GPU.
    """

    body: str
    codes: List[Optional[int]]
    patterns: List[str]
    only_cuda: str = ""
    environment: Dict[str, str] = field(default_factory=dict)


PASSED = [r"^passed$"] * 2

CASES = {
    "out of memory in a bucket": Case(
        """
layers = [torch.nn.Linear(1500, 1500, bias=False) for _ in range(8)]  # 9 MB each
model = DistributedDataParallel(torch.nn.Sequential(*layers).to(gpu), bucket_cap_mb=25)
def full(gradient):
    if rank == 1:
        torch.empty(1 << 50, dtype=torch.uint8, device=gpu)
layers[3].weight.register_hook(full)  # the first bucket is being exchanged
model(torch.ones(2, 1500, device=gpu)).sum().backward()
torch.cuda.synchronize()
""",
        [1, 1],
        [r"rank 1\b", r"out of memory|can't allocate memory"],
    ),
    "a device error": Case(
        """
values = torch.ones(LARGE, device=gpu)
if rank == 1:
    wrong = torch.zeros(4, device=gpu)[torch.full((1,), 1_000_000, device=gpu)]
dist.all_reduce(values)
torch.cuda.synchronize()
""",
        [1, None],  # torch may abort while it releases memory of a device that failed
        [r"rank 1\b", r"device-side assert|CUDA error"],
        only_cuda="the CPU reports a wrong index before the call",
    ),
    "a process killed with copies in flight": Case(
        """
values = [torch.full((LARGE,), float(rank + 1), device=gpu) for _ in range(4)]
dist.all_reduce(torch.ones(1, device=gpu))
works = [dist.all_reduce(one, async_op=True) for one in values]
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
for work in works:
    work.wait()
dist.barrier()
""",
        [1, KILLED],
        [r"rank 1\b", r""],
    ),
    "a stream destroyed early": Case(
        """
for turn in range(10):
    # torch's own streams belong to a pool and are never destroyed.
    handle = ctypes.c_uint64(0)
    if {kind!r} == "cuda":
        assert int(torch.cuda.cudart().cudaStreamCreate(ctypes.addressof(handle))) == 0
        stream = torch.cuda.ExternalStream(handle.value)
    else:
        stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        values = torch.full((LARGE,), float(rank + 1), device=gpu)
        work = dist.all_reduce(values, async_op=True)
    stream.synchronize()
    del stream
    if handle.value:
        assert int(torch.cuda.cudart().cudaStreamDestroy(handle.value)) == 0
    work.wait()
    summed(values)
passed()
""",
        [0, 0],
        PASSED,
    ),
    "two groups on one GPU": Case(
        """
groups = [dist.new_group(), dist.new_group()]
works, streams = [], [torch.cuda.Stream(), torch.cuda.Stream()]
for turn in range(20):
    for group, stream in zip(groups, streams):
        with torch.cuda.stream(stream):
            values = torch.full((LARGE // 8,), float(rank + 1), device=gpu)
            works.append((dist.all_reduce(values, group=group, async_op=True), values, stream))
for work, values, stream in works:
    with torch.cuda.stream(stream):
        work.wait()
        summed(values)
passed()
""",
        [0, 0],
        PASSED,
    ),
    "CUDA_LAUNCH_BLOCKING": Case(
        """
for turn in range(5):
    for count in (1, 1000, LARGE):
        values = torch.full((count,), float(rank + 1), device=gpu)
        dist.all_reduce(values)
        summed(values)
passed()
""",
        [0, 0],
        PASSED,
        environment={"CUDA_LAUNCH_BLOCKING": "1"},
    ),
    "a call while a graph is captured": Case(
        """
values = torch.full((1000,), float(rank + 1), device=gpu)
dist.all_reduce(torch.ones(1, device=gpu))
graph = torch.cuda.CUDAGraph()
# Torch 2.0 has one mode only: it does not let other threads allocate memory meanwhile.
modes = "capture_error_mode" in inspect.signature(torch.cuda.graph.__init__).parameters
mode = {"capture_error_mode": "thread_local"} if modes else {}
try:
    with torch.cuda.graph(graph, **mode):
        dist.all_reduce(values)
except Exception as error:
    # The end of the capture fails too; the error of the call is its context.
    texts = [str(one) for one in (error, error.__context__) if one is not None]
    assert any("a graph cannot record this call" in one for one in texts), texts
    passed()
os._exit(0)  # a graph that was not captured whole cannot be released
""",
        [0, 0],
        PASSED,
        only_cuda="graphs are not emulated",
    ),
    "another stream": Case(
        """
# The inputs are still being computed on a stream of the caller when the call is made there.
for turn in range(10):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        values = torch.full((LARGE,), 77.0, device=gpu)
        if hasattr(torch.cuda, "_sleep") and {kind!r} == "cuda":
            torch.cuda._sleep(20_000_000)
        values.fill_(float(rank + 1))
        dist.all_reduce(values)
        summed(values)
passed()
""",
        [0, 0],
        PASSED,
    ),
}


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--cases", default="", help="names of cases, separated by commas; all by default")
    return job.parsed(parser)


def run(case: Case, kind: str, options: Dict[str, str]) -> str:
    """Why the case failed, empty if it passed."""
    body = (PREAMBLE + case.body).replace("{here!r}", repr(str(job.HERE))).replace("{kind!r}", repr(kind))
    ended = job.ranks(
        [1, 1], [sys.executable, "-c", body], limit_s=LIMIT_S, environment={**options, **case.environment}
    )
    problems = []
    for one, code, pattern in zip(ended, case.codes, case.patterns):
        end = " ".join((one.out + one.err).split())[-300:]
        if one.late:
            problems.append(f"rank {one.rank} had not exited after {LIMIT_S} s: {end}")
        elif one.code == 0 if code is None else one.code != code:
            wanted = "a failure" if code is None else code
            problems.append(f"rank {one.rank} exited with {one.code}, not {wanted}: {end}")
        elif not re.search(pattern, one.out + one.err, re.MULTILINE):
            problems.append(f"the output of rank {one.rank} does not have {pattern!r}: {end}")
    return "; ".join(problems)


def measure(arguments: argparse.Namespace) -> List[figures.Figure]:
    found = []
    for name in arguments.cases.split(",") if arguments.cases else CASES:
        case = CASES[name]
        what = f"fault: {name}: ends as stated (1: yes)"
        if case.only_cuda and arguments.device != "cuda":
            found.append(figures.not_run(what, case.only_cuda))
            continue
        sys.stderr.write(f"{name}: 1+1 ranks\n")
        problem = run(case, arguments.device, job.options(arguments))
        found.append(figures.Figure(what, 0 if problem else 1, at_least=1, at_most=1, note=problem))
    return found


def main() -> int:
    arguments = parse()
    return figures.finish(measure(arguments), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
