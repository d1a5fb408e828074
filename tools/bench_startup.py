"""How long the library and the command line take to start, above ``python -c pass`` on the same machine.

    python tools/bench_startup.py [--runs 20]

Commands alternate, so that a drift of the machine's speed meets all of them. Prints medians; judges nothing.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: With data that every checkout has.
JOB = [
    str(ROOT / "templates" / "jobs" / "mnist.yaml"),
    *(f"--set=local.channels.{channel}={ROOT / 'templates' / 'jobs'}" for channel in ("train", "test")),
]
LAUNCHER = str(Path(sys.executable).with_name("smdp-launch"))

#: Command, and the milliseconds above an empty Python that it may take.
CASES: dict[str, tuple[list[str], int | None]] = {
    "python -c pass": ([sys.executable, "-c", "pass"], None),
    "import smdp_launch": ([sys.executable, "-c", "import smdp_launch"], 60),
    "from smdp_launch import plan": ([sys.executable, "-c", "from smdp_launch import plan"], None),
    "smdp-launch --help": ([LAUNCHER, "--help"], 150),
    "smdp-launch validate": ([LAUNCHER, "validate", *JOB], 300),
    "smdp-launch plan": ([LAUNCHER, "plan", *JOB], 400),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for index in range(runs + 1):
        for name, (command, _) in CASES.items():
            took = milliseconds(command)
            if index > 0:  # the first round warms the disk cache
                times[name].append(took)
    base = statistics.median(times["python -c pass"])
    print(f"Python {platform.python_version()}, {platform.machine()}, {runs} runs, median milliseconds")
    print(f"{'command':<30}{'whole':>8}{'above python':>14}{'may be':>8}")
    for name, (_, allowed) in CASES.items():
        median = statistics.median(times[name])
        print(f"{name:<30}{median:>8.0f}{median - base:>14.0f}{allowed or '':>8}")


def milliseconds(command: list[str]) -> float:
    start = time.perf_counter()
    ran = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    took = time.perf_counter() - start
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    return took * 1000


if __name__ == "__main__":
    main()
