"""Measure the processor time of one sample of the event `resources`, and the size of its line.

    python tools/bench_resources.py [--samples 50] [--processes 64]

Starts that many idle processes as if they were workers with their data loaders. Prints the time of each part and of the
whole, without a verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "containers" / "entrypoint"))

from smdp_entrypoint.contract.paths import MlTree
from smdp_entrypoint.resources import machine
from smdp_entrypoint.resources.channels import Channels
from smdp_entrypoint.resources.gpus import Gpus
from smdp_entrypoint.resources.process_trees import read_trees
from smdp_entrypoint.resources.sampler import Sampler
from smdp_entrypoint.resources.system_files import SystemFiles

_TICKS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--processes", type=int, default=64)
    arguments = parser.parse_args()
    with _processes(arguments.processes) as pids:
        _measure(pids, arguments.samples)


def _measure(pids: list[int], samples: int) -> None:
    files = SystemFiles()
    inputs = {f"channel{number}": {"TrainingInputMode": "File"} for number in range(20)}  # the platform's most
    channels = Channels(files, MlTree("/opt/ml"), inputs)
    gpus = Gpus.open()
    sampler = Sampler(files, channels, gpus, lambda: pids)
    parts: dict[str, Callable[[], object]] = {
        "processors": lambda: machine.cpu_seconds(files.read("/proc/stat"), {0}, _TICKS),
        "memory": lambda: machine.memory_bytes(files.read("/proc/meminfo")),
        "disks": lambda: machine.disk_bytes(files.read("/proc/diskstats")),
        "network": lambda: machine.network_bytes(files.read("/proc/net/dev")),
        f"trees of {len(pids)} processes": lambda: read_trees(files, pids, _TICKS),
        "20 channels": channels.read,
        **({f"use of {gpus.count} GPUs": gpus.use, f"memory of {gpus.count} GPUs": gpus.memory} if gpus else {}),
        "one sample": sampler.sample,
    }
    print(f"{len(files.names('/proc'))} entries in /proc, processor time in ms, mean of {samples}")
    for name, part in parts.items():
        before = time.process_time()
        for _ in range(samples):
            part()
        print(f"{name:<28} {(time.process_time() - before) / samples * 1000:8.3f}")
    print(f"{'bytes of the line':<28} {len(json.dumps(sampler.sample())):8}")


@contextlib.contextmanager
def _processes(count: int) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(subprocess.Popen(["sleep", "600"], start_new_session=True)) for _ in range(count)
        ]
        try:
            yield [process.pid for process in started]
        finally:
            for process in started:
                process.kill()


if __name__ == "__main__":
    main()
