"""Measure how often ``diagnose`` names the cause that was injected into a local job, and how much time it blames.

    python tools/diagnosis/bench.py [--runs 3] [--steps 150] [--cause source ...]

Each run is a local job of 2 hosts x 2 workers of training.py. Prints the confusion matrix, and for each
run the injected and the blamed milliseconds of each step. A slow link and a slow store need root, as
``launch --network`` and ``rehearse slow-input`` do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
JOB = """\
schema: 1
name: diagnosis
engine: native
framework: {{name: pytorch, version: "2.0.1"}}
image: 123456789012.dkr.ecr.us-west-2.amazonaws.com/smdp-pytorch:2.0.1-cu118
script:
  entry: training.py
  source: src
  hyperparameters: {hyperparameters}
compute: {{instance_type: ml.p4d.24xlarge, instance_count: 2, max_run: 3600}}
channels: {channels}
local: {local}
output: {{s3: "s3://some-bucket/output"}}
role: arn:aws:iam::123456789012:role/training
region: us-west-2
environment: {{SMDP_TIMING_S: "1"}}
"""


CORES = os.cpu_count() or 1
RANKS, RANKS_PER_HOST, BATCH, SAMPLE = 4, 2, 4, 1 << 16
STORE_RATE = 5_000_000  # bytes a second of each host
LINK_RATE = 100e6 / 8  # bytes a second of each host
WIDTH = 8192
#: Bytes of gradients: two layers of WIDTH, 64 inputs and 8 outputs.
GRADIENTS = 4 * (64 * WIDTH + WIDTH + WIDTH * 8 + 8)


class Case(NamedTuple):
    """Args:
    seconds: argument of the script.
    injected: seconds of each step, that the cause takes; None if there is none, the script prints them, or `control`
        measures them.
    cause: that the verdict should name.
    control: a run with these hyperparameters and without the cause is made first; what a step takes longer than there
        was injected.
    """

    seconds: float | None
    injected: float | None
    cause: str
    hyperparameters: Mapping[str, float] = MappingProxyType({})
    options: tuple[str, ...] = ()
    control: bool = False


#: Of one loader worker, `compute` seconds are hidden behind the step; 0.05 where nothing else is said.
CASES = {
    "none": Case(None, None, "computing"),
    "store": Case(None, RANKS_PER_HOST * BATCH * SAMPLE / STORE_RATE - 0.05, "source"),
    "source": Case(0.08, 0.08, "source"),
    # The loaders of all hosts share the cores of this machine with its other processes.
    "decoding": Case(0.06, None, "decoding", {"compute": 0.02}, control=True),
    "workers": Case(0.015, None, "workers", {"compute": 0.06}),
    "slow_worker": Case(0.08, 0.08, "slow_worker"),
    "slow_host": Case(0.08, 0.08, "slow_host"),
    "checkpoints": Case(0.06, 0.06, "checkpoints"),
    "evaluation": Case(0.06, 0.06, "evaluation"),
    # Two hosts: each sends half of the sum, and half of the result.
    "exchanges": Case(None, GRADIENTS / LINK_RATE, "exchanges", {"width": WIDTH}, ("--network", "100mbit")),
}


class Run(NamedTuple):
    """Args:
    result: the JSON of ``diagnose``.
    injected: seconds of each step, None if they are not known.
    """

    result: dict[str, Any]
    injected: float | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each cause")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--cause", action="append", choices=CASES, help="only this cause; may be repeated")
    parser.add_argument("--keep", type=Path, help="write the JSON of each run into this folder")
    arguments = parser.parse_args()
    causes = arguments.cause or list(CASES)
    without: dict[str, float] = {}
    for cause in causes:
        if CASES[cause].control:
            same = CASES["none"]._replace(hyperparameters=CASES[cause].hyperparameters)
            control = diagnosed("none", same, arguments.steps)
            if control is not None:
                without[cause] = control.result["step_seconds"]
    found: dict[str, Counter[str]] = {cause: Counter() for cause in causes}
    errors: list[float] = []
    print(f"{platform.machine()}, {CORES} cores, {arguments.runs} runs of each cause", flush=True)
    for run in range(arguments.runs):
        for cause in causes:
            one = diagnosed(cause, CASES[cause], arguments.steps)
            if one is not None and cause in without:
                one = one._replace(injected=one.result["step_seconds"] - without[cause])
            found[cause][one.result["cause"] if one is not None else "failed"] += 1
            print(line(cause, one), flush=True)
            if one is not None and one.injected is not None and one.result["seconds_per_step"] is not None:
                errors.append(one.result["seconds_per_step"] / one.injected - 1)
            if arguments.keep is not None and one is not None:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                (arguments.keep / f"{cause}-{run}.json").write_text(json.dumps(one.result, indent=2))
    print_matrix(found)
    right = sum(counts[CASES[cause].cause] for cause, counts in found.items())
    near = sum(abs(error) <= 0.1 for error in errors)
    print(f"{right} of {len(causes) * arguments.runs} causes named right, {near} of {len(errors)} times within 10 %")
    return 0


def diagnosed(cause: str, case: Case, steps: int) -> Run | None:
    """Run one job and diagnose it; None if the job failed, whose output goes to standard error."""
    values = {"inject": cause, "steps": steps, **({"seconds": case.seconds} if case.seconds is not None else {})}
    values.update(case.hyperparameters)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "src").mkdir()
        shutil.copy(Path(__file__).with_name("training.py"), folder / "src")
        channels, local = {}, {}
        command = ["launch", "--local", "--yes"]
        if cause == "store":
            (folder / "train").mkdir()
            for rank in range(RANKS):
                (folder / "train" / f"samples-{rank}").write_bytes(bytes(BATCH * SAMPLE * steps))
            channels = {"train": {"s3": "s3://some-bucket/train", "mode": "FastFile"}}
            local = {"channels": {"train": "train"}}
            command = ["rehearse", "slow-input", "job.yaml", "--rate", f"{STORE_RATE // 1000}kB", "--latency", "0ms"]
        text = JOB.format(hyperparameters=json.dumps(values), channels=json.dumps(channels), local=json.dumps(local))
        (folder / "job.yaml").write_text(text)
        # A home of its own, so that the benchmark's jobs are not in the user's history.
        environment = {**os.environ, "HOME": name, "XDG_STATE_HOME": f"{name}/state", "XDG_CACHE_HOME": f"{name}/cache"}

        def launcher(*arguments: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "smdp_launch", *arguments]
            return subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)

        ran = launcher(*command, "--hosts", "2", "--workers-per-host", "2", *case.options)
        shown = launcher("diagnose", "--json") if ran.returncode == 0 else None
        launcher("local", "down")
        if shown is None or shown.returncode != 0:
            failed = shown or ran
            print(failed.stdout[-2000:], failed.stderr[-2000:], sep="\n", file=sys.stderr)
            return None
        printed = re.search(r"injected ([0-9.]+) ms a step", ran.stdout)
        injected = float(printed[1]) / 1000 if printed else case.injected
        return Run(json.loads(shown.stdout), injected)


def line(cause: str, run: Run | None) -> str:
    if run is None:
        return f"{cause:12} failed"
    result, named = run.result, run.result["cause"]
    right = "right" if named == CASES[cause].cause else "wrong"
    if result["seconds_per_step"] is None:
        return f"{cause:12} {right} {named}"
    blamed, step = result["seconds_per_step"], result["step_seconds"]
    shares = ", ".join(f"{name} {100 * share:.0f}" for name, share in result["shares"].items() if share >= 0.02)
    known = run.injected
    off = f"injected {1000 * known:4.0f} ms, {100 * (blamed / known - 1):+4.0f} %" if known is not None else ""
    return (
        f"{cause:12} {right} {named:12} {result['sure']:7} "
        f"blamed {1000 * blamed:4.0f} ms of {1000 * step:4.0f} ms; {off:28}; {shares}"
    )


def print_matrix(found: dict[str, Counter[str]]) -> None:
    names = sorted({name for counts in found.values() for name in counts} | set(found))
    print("\ninjected \\ named " + " ".join(f"{name:>11}" for name in names))
    for cause, counts in found.items():
        print(f"{cause:16} " + " ".join(f"{counts[name] or '':>11}" for name in names))


if __name__ == "__main__":
    sys.exit(main())
