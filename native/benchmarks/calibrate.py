"""Fits the cost model to this machine on two shapes, then compares it with measurements of other shapes.

Usage: ``python native/benchmarks/calibrate.py [--rate 100] [--json FILE]``. Needs root and a machine without other
load. ``measure_costs`` measures the costs of processor and memory. Two hosts of one rank then give the network's
overhead and latency; one host of eight ranks gives the memory cost when all ranks use it, and the cost of a message
within a host. No value is fitted to the other shapes.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

import contenders
import cost_model
from lab import Lab, burst_bytes
from run import bytes_of, machine, measure

Costs = Dict[str, float]
Shape = Tuple[int, int]

SIZES = [bytes_of(word) for word in ("1M", "4M", "25M")]
WIRE: Shape = (2, 1)
MEMORY: Shape = (1, 8)
UNSEEN: List[Shape] = [(4, 4), (8, 1), (16, 1), (2, 8)]


def shape_name(shape: Shape) -> str:
    return f"{shape[0]}x{shape[1]}"


def modelled_s(shape: Shape, size: int, costs: Costs) -> float:
    return float(cost_model.ask(*shape, [(size, 0.0)], costs)["seconds"])


def measured_s(shape: Shape, rate_mbit: Optional[int], iterations: int) -> Dict[int, float]:
    """Medians by size."""
    cases = ",".join(f"{size}:{iterations}" for size in SIZES)
    with Lab(shape[0], rate_mbit) as lab:
        taken = measure(contenders.Setup(lab, shape[1], cases, "float32"), ["smdp"], 1)["smdp"]
    wrong = [size for size, one in taken.items() if not one["correct"]]
    if wrong:
        raise RuntimeError(f"{shape_name(shape)}: wrong sums of {wrong} bytes")
    return {size: statistics.median(one["seconds"]) for size, one in taken.items()}


Change = Callable[[Costs, float], Costs]


def fitted(costs: Costs, change: Change, shape: Shape, size: int, seconds: float, least: float, most: float) -> Costs:
    """The value of ``change`` between ``least`` and ``most`` with which the model gives the measured seconds.

    The model's time must not fall where the value grows.
    """
    for _ in range(24):
        middle = (least + most) / 2
        if modelled_s(shape, size, change(costs, middle)) < seconds:
            least = middle
        else:
            most = middle
    return change(costs, (least + most) / 2)


def costs_of(name: str) -> Change:
    return lambda costs, value: {**costs, name: value}


def fit(costs: Costs, wire: Dict[int, float], memory: Dict[int, float]) -> Costs:
    """The costs that follow from the times of `WIRE` and `MEMORY`, by size."""
    small, large = SIZES[0], SIZES[-1]
    copy, fold = costs["copy_byte"], costs["fold_byte"]

    def memory_costs(before: Costs, scale: float) -> Costs:
        return {**before, "copy_byte": copy * scale, "fold_byte": fold * scale}

    # Fit them in turn until they agree.
    for _ in range(4):
        costs = fitted(costs, memory_costs, MEMORY, large, memory[large], 0.1, 20)
        costs = fitted(costs, costs_of("local_frame"), MEMORY, small, memory[small], 0, 1e-4)
    for _ in range(4):
        costs = fitted(costs, costs_of("wire_overhead"), WIRE, large, wire[large], 1.0, 1.3)
        costs = fitted(costs, costs_of("link_latency"), WIRE, small, wire[small], 0, 0.01)
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rate", type=int, default=100, help="Mbit/s of each host's link: low enough to be the bottleneck"
    )
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--json", type=Path, help="the file for the results")
    arguments = parser.parse_args()
    contenders.build()
    printed = subprocess.run(
        [str(contenders.BUILD / "benchmarks" / "measure_costs")], check=True, capture_output=True, text=True
    ).stdout
    costs: Costs = {name: float(value) for name, value in (line.split() for line in printed.splitlines())}
    rate = arguments.rate * 1e6 / 8
    costs = {**costs, "link_rate": rate, "link_burst": burst_bytes(arguments.rate), "cores_are_shared": 1}
    measured = {MEMORY: measured_s(MEMORY, None, 4 * arguments.iterations)}
    for shape in [WIRE, *UNSEEN]:
        measured[shape] = measured_s(shape, arguments.rate, arguments.iterations)
    costs = fit(costs, measured[WIRE], measured[MEMORY])
    for name, value in costs.items():
        print(f"cost {name} {value:.4g}")
    rows = [
        (shape_name(shape), "unseen" if shape in UNSEEN else "fitted", size, seconds, modelled_s(shape, size, costs))
        for shape, by_size in measured.items()
        for size, seconds in by_size.items()
    ]
    print("| shape | | MiB | measured ms | model ms | error |\n|---|---|---|---|---|---|")
    for name, kind, size, seconds, model in rows:
        print(
            f"| {name} | {kind} | {size >> 20} | {seconds * 1e3:.1f} | {model * 1e3:.1f} | {model / seconds - 1:+.1%} |"
        )
    errors = [abs(model / seconds - 1) for _, kind, _, seconds, model in rows if kind == "unseen"]
    print(f"other shapes: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "costs": costs, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
