"""Measure the start of the library and the command line, compared with ``python -c pass`` on the same machine.

    python tools/bench_startup.py [--runs 20]

Commands alternate, so that a change of the machine's speed affects all of them. Prints medians, without a verdict.
The large script is the template's, repeated to 1,000 lines, with 10 modules of 200 lines that it imports.
"""

from __future__ import annotations

import argparse
import compileall
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: A job with data that every checkout has.
JOB = [
    str(ROOT / "templates" / "jobs" / "mnist.yaml"),
    *(f"--set=local.channels.{channel}={ROOT / 'templates' / 'jobs'}" for channel in ("train", "test")),
]
LAUNCHER = str(Path(sys.executable).with_name("smdp-launch"))

#: Command, and its limit in milliseconds more than an empty Python.
CASES: dict[str, tuple[list[str], int | None]] = {
    "python -c pass": ([sys.executable, "-c", "pass"], None),
    "import smdp_launch": ([sys.executable, "-c", "import smdp_launch"], 60),
    "from smdp_launch import plan": ([sys.executable, "-c", "from smdp_launch import plan"], None),
    "smdp-launch --help": ([LAUNCHER, "--help"], 150),
    "smdp-launch validate": ([LAUNCHER, "validate", *JOB], 300),
    "smdp-launch plan": ([LAUNCHER, "plan", *JOB], 400),
}
LARGE = "validate, a large script"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    # Compile as for an installed package. Otherwise each run would compile a new checkout.
    compileall.compile_dir(ROOT / "smdp_launch", quiet=1)
    with tempfile.TemporaryDirectory() as folder:
        large = [LAUNCHER, "validate", *JOB, f"--set=script.source={large_source(Path(folder))}"]
        measure({**CASES, LARGE: (large, 300)}, runs)


def large_source(folder: Path) -> Path:
    """A source folder in which the template's script has 1,000 lines and imports 10 modules of 200 lines."""
    lines = (ROOT / "templates" / "scripts" / "mnist_ddp.py").read_text().splitlines()
    main = lines.index(next(line for line in lines if line.startswith("if __name__")))
    top = next(number for number, line in enumerate(lines) if line.startswith(("def ", "class ")))
    imports = [f"import part_{number}" for number in range(10)]
    for number in range(10):
        (folder / f"part_{number}.py").write_text(_filled(lines[:top], lines[top:main], [], 200))
    (folder / "mnist_ddp.py").write_text(_filled([*lines[:top], *imports], lines[top:main], lines[main:], 1000))
    return folder


def _filled(head: list[str], body: list[str], tail: list[str], lines: int) -> str:
    """``head``, as many whole ``body`` as fit, blank lines, and ``tail``."""
    left = lines - len(head) - len(tail)
    return "\n".join([*head, *body * (left // len(body)), *[""] * (left % len(body)), *tail]) + "\n"


def measure(cases: dict[str, tuple[list[str], int | None]], runs: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in cases}
    for index in range(runs + 1):
        for name, (command, _) in cases.items():
            took = milliseconds(command)
            if index > 0:  # the first round fills the disk cache
                times[name].append(took)
    base = statistics.median(times["python -c pass"])
    print(f"Python {platform.python_version()}, {platform.machine()}, {runs} runs, median milliseconds")
    print(f"{'command':<30}{'whole':>8}{'above python':>14}{'may be':>8}")
    for name, (_, allowed) in cases.items():
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
