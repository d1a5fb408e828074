"""Trains the template mnist_ddp.py with smddp and with Gloo, in fp32, fp16 and bf16, and compares all losses.

Example: ``python native/benchmarks/gpu/mnist.py --layout 2x2``
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import figures
import job
from losses import largest_difference

SCRIPTS = job.ROOT / "templates" / "scripts"
#: Set before the first run on a GPU. The convolutions of cuDNN need not give the same bits in every run.
BARS = {"fp32": 1e-3, "fp16": 2e-2, "bf16": 5e-2}
LIMIT_S = 200
ACCURACY = 0.90


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--layout", default="2x2", help="hosts x ranks, or the ranks of each host: 3+1")
    parser.add_argument("--steps", type=int, default=100, help="steps whose losses are compared")
    parser.add_argument("--precisions", default="fp32,fp16,bf16")
    return job.parsed(parser)


def train(arguments: argparse.Namespace, data: Path, folder: Path, backend: str, precision: str) -> Dict[str, Any]:
    """The losses of all steps and the result that rank 0 reports."""
    script = SCRIPTS / "mnist_ddp.py"
    start = [sys.executable, str(script)]
    if arguments.device == "emulated":
        code = "import runpy, sys; from smdp_engine import cuda_on_cpu; cuda_on_cpu.install(); "
        start = [sys.executable, "-c", f"{code}sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], None, '__main__')"]
        start.append(str(script))
    steps = arguments.steps if backend != "smddp" or precision != "fp32" else 0  # all, for the accuracy
    start += ["--train", str(data / "train"), "--test", str(data / "test"), "--model-dir", str(folder / "model")]
    start += ["--steps", str(8 if arguments.small else steps), "--backend", backend, "--precision", precision]
    sys.stderr.write(f"mnist_ddp.py --backend {backend} --precision {precision}: {arguments.layout} ranks\n")
    ended = job.ranks(job.layout(arguments.layout), start, limit_s=LIMIT_S, environment=job.options(arguments))
    job.failed(ended, f"mnist_ddp.py, {backend}, {precision}", LIMIT_S)
    events = [json.loads(line) for line in ended[0].out.splitlines() if line.startswith('{"smdp_event"')]
    (result,) = [event for event in events if event["event"] == "result"]
    return {
        "losses": [event["loss"] for event in events if event["event"] == "step"],
        "accuracy": result["accuracy"],
        "device": re.findall(r"^computes on (\S+) in", ended[0].out, re.MULTILINE)[0],
    }


def measure(arguments: argparse.Namespace) -> List[figures.Figure]:
    found = []
    with tempfile.TemporaryDirectory(prefix="smdp-gpu-") as name:
        folder = Path(name)
        prepare = [sys.executable, str(SCRIPTS / "prepare_mnist.py"), str(folder)]
        subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL, timeout=120, env=dict(os.environ))
        for precision in arguments.precisions.split(","):
            what = f"MNIST template, {precision}: difference of a loss from gloo"
            try:
                ours, theirs = (train(arguments, folder, folder, one, precision) for one in ("smddp", "gloo"))
            except job.JobFailedError as error:
                note = " ".join(str(error).split())[-300:]
                found.append(figures.Figure(what, float("nan"), at_most=BARS[precision], note=note))
                continue
            difference = largest_difference(ours["losses"], theirs["losses"])
            note = f"{arguments.layout} ranks on {ours['device']}, {len(theirs['losses'])} steps"
            found.append(figures.Figure(what, difference, at_most=BARS[precision], note=note))
            if precision == "fp32" and not arguments.small:
                what = "MNIST template, fp32: accuracy on unseen digits"
                found.append(figures.Figure(what, ours["accuracy"], at_least=ACCURACY))
    return found


def main() -> int:
    arguments = parse()
    return figures.finish(measure(arguments), arguments.json)


if __name__ == "__main__":
    sys.exit(main())
