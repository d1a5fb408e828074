"""What the measurement of a rank costs: steps of about 10 ms, in one process with the hooks and without them in turn.

    python native/benchmarks/timing_overhead.py [--processes 4] [--pairs 1000] [--size 640]

A step is a batch of a DataLoader without or with two workers, matrix products, a backward pass and an optimizer's step,
with DistributedDataParallel on one rank. Two processes that do the same differ by more than the hooks cost, and so does
one process a second later. So each process measures itself in pairs of steps that follow each other, and gives torch
back its own functions in one step of each pair, first or second in turn. The rows state the medians over all pairs: the
step's time, the time of the training thread on a CPU, and the difference with its standard error. The last row is the
time for an event, one in five seconds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

RANK = Path(__file__).with_name("timing_overhead_rank.py")


def measured(workers: int, pairs: int, size: int) -> Dict[str, Any]:
    """Pairs of steps in a process of its own: ``pairs`` of [off, on], each (seconds of a step, seconds on a CPU)."""
    reading, writing = os.pipe()
    status = os.fstat(writing)
    environ = {
        **os.environ,
        "RANK": "0",
        "OMP_NUM_THREADS": "1",
        "SMDP_TIMING_S": "5",
        "SMDP_EVENT_PIPE": f"{writing}:{status.st_dev}:{status.st_ino}",
    }
    try:
        ran = subprocess.run(
            [sys.executable, str(RANK), str(workers), str(pairs), str(size)],
            env=environ,
            pass_fds=(writing,),
            stdout=subprocess.PIPE,
            check=True,
        )
    finally:
        os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        if not pipe.read():
            raise SystemExit("the process has written no event")
    result: Dict[str, Any] = json.loads(ran.stdout)
    return result


def show(name: str, off: List[float], on: List[float]) -> None:
    differences = [one - other for one, other in zip(on, off)]
    middle = statistics.median(differences)
    # From the median distance, since other processes make a few steps much longer.
    spread = 1.48 * statistics.median(abs(one - middle) for one in differences)
    error = 1.25 * spread / len(differences) ** 0.5
    print(
        f"{name:24} off {statistics.median(off) * 1e3:8.3f} ms   on {statistics.median(on) * 1e3:8.3f} ms   "
        f"difference {middle * 1e6:6.1f} us +- {error * 1e6:.1f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=4, help="processes for each row")
    parser.add_argument("--pairs", type=int, default=1000, help="pairs of steps of each process")
    parser.add_argument("--size", type=int, default=640, help="width of the layers; 640 is about 10 ms a step")
    options = parser.parse_args()
    events: List[float] = []
    for workers in (0, 2):
        pairs = []
        for _ in range(options.processes):
            result = measured(workers, options.pairs, options.size)
            pairs += result["pairs"]
            events.append(result["event"])
        for place, what in enumerate(("step", "on a CPU")):
            off, on = ([steps[is_on][place] for steps in pairs] for is_on in (0, 1))
            show(f"{workers} workers, {what}", off, on)
    print(f"an event                 {statistics.median(events) * 1e3:8.3f} ms")


if __name__ == "__main__":
    main()
