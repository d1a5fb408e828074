"""What the measurement of a rank costs: steps of about 10 ms with and without it, and the hooks alone.

    python native/benchmarks/timing_overhead.py [--rounds 10] [--steps 200]

Each round runs a process with SMDP_TIMING_S=0 and one with the default, in alternating order. `steps` are loops of a
DataLoader without or with two workers, matrix products, a backward pass and an optimizer's step, with
DistributedDataParallel on one rank; the table has the median of the rounds' ratios. `hooks` are steps of an almost
empty model, in time of the training thread on a CPU: the difference is what the hooks cost in each step, which a
machine with other work can show too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Dict, List

STEP = """
import json, os, sys, time
import torch
if os.environ["SMDP_TIMING_S"] != "0":
    from smdp_engine.timing import torch_hooks
    torch_hooks.install()
from torch.utils.data import DataLoader, Dataset
workers, steps, size = (int(text) for text in sys.argv[1:])
torch.set_num_threads(1)
class Samples(Dataset):
    def __len__(self): return steps
    def __getitem__(self, index): return torch.ones(size)
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
layers = torch.nn.Sequential(*(torch.nn.Linear(size, size) for _ in range(4)))
model = torch.nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
def run(count):
    times, busy = [], []
    before, cpu_before = time.perf_counter(), time.thread_time()
    for batch in DataLoader(Samples(), batch_size=1, num_workers=workers):
        model(batch.expand(64, size)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        now, cpu = time.perf_counter(), time.thread_time()
        times.append(now - before)
        busy.append(cpu - cpu_before)
        before, cpu_before = now, cpu
    return sorted(times)[count // 2], sorted(busy)[count // 2]
run(steps)  # warm
elapsed, cpu = run(steps)
print(json.dumps({"elapsed": elapsed, "cpu": cpu}))
"""


def measured(workers: int, steps: int, size: int, *, is_on: bool) -> Dict[str, float]:
    """Seconds of a step in a process of its own."""
    reading, writing = os.pipe()
    status = os.fstat(writing)
    environ = {
        **os.environ,
        "RANK": "0",
        "OMP_NUM_THREADS": "1",
        "SMDP_TIMING_S": "5" if is_on else "0",
        "SMDP_EVENT_PIPE": f"{writing}:{status.st_dev}:{status.st_ino}",
    }
    try:
        ran = subprocess.run(
            [sys.executable, "-c", STEP, str(workers), str(steps), str(size)],
            env=environ,
            pass_fds=(writing,),
            stdout=subprocess.PIPE,
            check=True,
        )
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        events = pipe.read().splitlines()
    if bool(events) != is_on:
        raise SystemExit(f"{len(events)} events with measurement {'on' if is_on else 'off'}")
    result: Dict[str, float] = json.loads(ran.stdout)
    return result


def pairs(rounds: int, workers: int, steps: int, size: int, what: str) -> Dict[bool, List[float]]:
    """The medians of the steps of the processes, without (False) and with the measurement."""
    times: Dict[bool, List[float]] = {False: [], True: []}
    for number in range(rounds):
        for is_on in (False, True) if number % 2 else (True, False):
            times[is_on].append(measured(workers, steps, size, is_on=is_on)[what])
    return times


def show(name: str, times: Dict[bool, List[float]]) -> None:
    off, on = (statistics.median(times[is_on]) for is_on in (False, True))
    ratio = statistics.median(one / other for one, other in zip(times[True], times[False]))
    print(f"{name:28} off {off * 1e3:8.3f} ms   on {on * 1e3:8.3f} ms   ratio {ratio:.4f}", end="   ")
    print(f"difference {(on - off) * 1e6:6.1f} us", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="pairs of processes for each row")
    parser.add_argument("--steps", type=int, default=200, help="steps of each process, after as many to warm up")
    parser.add_argument("--hooks", action="store_true", help="only the rows of the hooks")
    parser.add_argument("--size", type=int, default=640, help="width of the layers; 640 is about 10 ms a step")
    options = parser.parse_args()
    for workers in () if options.hooks else (0, 2):
        show(f"steps, {workers} workers", pairs(options.rounds, workers, options.steps, options.size, "elapsed"))
    for workers in (0, 2):
        show(f"hooks, {workers} workers", pairs(options.rounds, workers, 10 * options.steps, 4, "cpu"))


if __name__ == "__main__":
    main()
