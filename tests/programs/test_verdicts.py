"""Jobs of third-party libraries: the steps and samples that each rank counts, and the verdict for an injected cause."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import JOB, clean_environment

from .environments import AS_ACCELERATE, AS_THE_TOOLKIT, HERE, PYTHON

pytestmark = [pytest.mark.torch, pytest.mark.programs, pytest.mark.timeout(600)]

HOSTS, WORKERS = 2, 2
# The script's own arguments, which need not have the form of hyperparameters.
ENTRY = """\
import os, runpy, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.argv = {arguments!r}
runpy.run_path(os.path.join(here, sys.argv[0]), run_name="__main__")
"""


class Program(NamedTuple):
    """A script with its arguments, and what each of the four ranks does in it.

    Args:
        samples: 0 if no loader delivers them.
        evaluated: batches of evaluation.
    """

    arguments: list[str]
    environment: dict[str, str]
    steps: int
    batches: int
    samples: int
    evaluated: int = 0


PROGRAMS = {
    # Lightning also tries two batches of evaluation before the training.
    "lightning": Program(["lightning_ddp.py", "smddp"], {}, 20, 20, 320, evaluated=2 + 2 * 3),
    "accelerate": Program(["accelerate_loop.py"], AS_ACCELERATE["smddp"], 10, 20, 320, evaluated=2 * 3),
    "accelerate-stream": Program(["accelerate_stream.py"], AS_ACCELERATE["smddp"], 20, 20, 320),
    "trainer": Program(["without_gpu.py", "trainer_bert.py", "out"], AS_THE_TOOLKIT["smddp"], 10, 10, 80, evaluated=10),
    "deepspeed": Program(["deepspeed_zero.py", "smddp", "2"], {"DS_ACCELERATOR": "cpu"}, 10, 0, 0),
    "fsdp2": Program(["fsdp2.py", "smddp", "float32"], {}, 20, 0, 0),
}
#: The data of a script without a loader is in its training thread, and such a script evaluates nothing here.
CAUSES = {
    name: ["source", "slow_worker", *(["evaluation"] if program.evaluated else [])]
    if program.batches
    else ["slow_worker"]
    for name, program in PROGRAMS.items()
}


class Ran(NamedTuple):
    counts: dict[int, Counter[str]]
    verdict: dict[str, Any]


def run(folder: Path, program: Program, cause: str) -> Ran:
    (folder / "src").mkdir()
    for script in HERE.glob("*.py"):
        (folder / "src" / script.name).write_text(script.read_text())
    (folder / "src" / "train.py").write_text(ENTRY.format(arguments=program.arguments))
    # The entrypoint sets the variables of SageMaker, as on SageMaker.
    own = {name: value for name, value in program.environment.items() if not name.startswith("SM_")}
    environment = {**own, "INJECT": cause, "SMDP_TIMING_S": "0.5", "HF_HUB_OFFLINE": "1"}
    text = JOB.replace('channels:\n  train: {s3: "s3://bucket/train"}\n', "").partition("local:")[0]
    text = text.replace("  hyperparameters: {epochs: 2}\n", "") + f"environment: {json.dumps(environment)}\n"
    (folder / "job.yaml").write_text(text)

    def launcher(*arguments: str) -> str:
        command = [PYTHON, "-m", "smdp_launch", *arguments]
        ran = subprocess.run(command, cwd=folder, env=clean_environment(), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
        return ran.stdout

    shown = launcher("launch", "--local", "--json", "--hosts", str(HOSTS), "--workers-per-host", str(WORKERS))
    counts: dict[int, Counter[str]] = {rank: Counter() for rank in range(HOSTS * WORKERS)}
    for line in map(json.loads, shown.splitlines()):
        if line.get("seen") == "event" and line["name"] == "timing":
            fields = line["fields"]
            counts[fields["rank"]].update({name: fields[name] for name in ("steps", "batches", "samples")})
    return Ran(counts, json.loads(launcher("diagnose", "--json")))


@pytest.mark.parametrize(("name", "cause"), [(name, cause) for name, causes in CAUSES.items() for cause in causes])
def test_verdict_names_the_injected_cause_and_counts_are_the_scripts(name: str, cause: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    ran = run(tmp_path, program, cause)
    for rank, counts in ran.counts.items():
        expected = Counter(steps=program.steps, batches=program.batches + program.evaluated, samples=program.samples)
        assert counts == expected, f"rank {rank}"
    verdict = ran.verdict
    assert verdict["cause"] == cause, verdict["sentence"]
    if cause == "slow_worker":
        assert verdict["ranks"] == [HOSTS * WORKERS - 1]
    shares = {one: round(share, 3) for one, share in verdict["shares"].items() if share >= 0.01}
    print(f"{name}, {cause}: {verdict['sentence']} {shares}")
