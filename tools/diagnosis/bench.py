"""Measure how often ``diagnose`` names the cause that was injected into a local job, and how much time it blames.

    python tools/diagnosis/bench.py [--runs 3] [--steps 400] [--cause source ...]

Each run is a local job of 2 hosts x 2 workers of training.py. Prints the confusion matrix, and for each
run the injected and the blamed milliseconds of each step. A slow link needs root, as ``launch --network`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
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
channels: {{}}
output: {{s3: "s3://some-bucket/output"}}
role: arn:aws:iam::123456789012:role/training
region: us-west-2
environment: {{SMDP_TIMING_S: "1"}}
"""


class Case(NamedTuple):
    """Args:
    seconds: of each step, that the injected cause takes; None if it is not known in advance.
    """

    seconds: float | None
    hyperparameters: Mapping[str, float] = MappingProxyType({})
    options: tuple[str, ...] = ()


#: The cause that the verdict should name. Decoding needs more CPUs than the machine has: 4 workers on 2 cores.
CASES = {
    "computing": Case(None),
    "source": Case(0.08),
    "decoding": Case(None, {"compute": 0.02, "seconds": 0.06}),
    "workers": Case(0.015, {"compute": 0.06}),
    "slow_worker": Case(0.08),
    "slow_host": Case(0.08),
    "checkpoints": Case(0.06),
    "evaluation": Case(0.06),
    "exchanges": Case(None, {"width": 8192}, ("--network", "100mbit")),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="of each cause")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--cause", action="append", choices=CASES, help="only this cause; may be repeated")
    parser.add_argument("--keep", type=Path, help="write the JSON of each run into this folder")
    arguments = parser.parse_args()
    causes = arguments.cause or list(CASES)
    found: dict[str, Counter[str]] = {cause: Counter() for cause in causes}
    print(f"{platform.machine()}, {os.cpu_count()} cores, {arguments.runs} runs of each cause", flush=True)
    for run in range(arguments.runs):
        for cause in causes:
            result = diagnosed(cause, CASES[cause], arguments.steps)
            named = result["cause"] if result is not None else "failed"
            found[cause][named] += 1
            print(line(cause, CASES[cause], named, result), flush=True)
            if arguments.keep is not None and result is not None:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                (arguments.keep / f"{cause}-{run}.json").write_text(json.dumps(result, indent=2))
    print_matrix(found)
    return 0


def diagnosed(cause: str, case: Case, steps: int) -> dict[str, Any] | None:
    """Run one job and diagnose it; None if the job failed, whose output goes to standard error."""
    values = {"inject": cause, "steps": steps, **({"seconds": case.seconds} if case.seconds is not None else {})}
    values.update(case.hyperparameters)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "src").mkdir()
        shutil.copy(Path(__file__).with_name("training.py"), folder / "src")
        (folder / "job.yaml").write_text(JOB.format(hyperparameters=json.dumps(values)))
        # A home of its own, so that the benchmark's jobs are not in the user's history.
        environment = {**os.environ, "HOME": name, "XDG_STATE_HOME": f"{name}/state", "XDG_CACHE_HOME": f"{name}/cache"}
        launcher = [sys.executable, "-m", "smdp_launch"]
        options = ["--local", "--yes", "--hosts", "2", "--workers-per-host", "2", *case.options]
        ran = subprocess.run(
            [*launcher, "launch", *options], cwd=folder, env=environment, text=True, capture_output=True, check=False
        )
        shown = None
        if ran.returncode == 0:
            command = [*launcher, "diagnose", "--json"]
            shown = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
            ran = shown
        subprocess.run([*launcher, "local", "down"], cwd=folder, env=environment, capture_output=True, check=False)
        if shown is None or shown.returncode != 0:
            print(ran.stdout[-2000:], ran.stderr[-2000:], sep="\n", file=sys.stderr)
            return None
        result: dict[str, Any] = json.loads(shown.stdout)
        return result


def line(cause: str, case: Case, named: str, result: dict[str, Any] | None) -> str:
    injected = f"{1000 * case.seconds:.0f} ms" if case.seconds is not None else "-"
    if result is None or result["seconds_per_step"] is None:
        return f"{cause:12} {named}"
    blamed, step = 1000 * result["seconds_per_step"], 1000 * result["step_seconds"]
    shares = ", ".join(f"{name} {100 * share:.0f}" for name, share in result["shares"].items() if share >= 0.02)
    return (
        f"{cause:12} {named:12} {result['sure']:7} injected {injected:>6}, blamed {blamed:4.0f} ms "
        f"of {step:4.0f} ms; {shares}"
    )


def print_matrix(found: dict[str, Counter[str]]) -> None:
    names = sorted({name for counts in found.values() for name in counts} | set(found))
    print("\ninjected \\ named " + " ".join(f"{name:>11}" for name in names))
    for cause, counts in found.items():
        print(f"{cause:16} " + " ".join(f"{counts[name] or '':>11}" for name in names))


if __name__ == "__main__":
    sys.exit(main())
