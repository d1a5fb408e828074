"""How long a save keeps the training from its next step: `save` and `async_save` of the same state in turn.

    python native/benchmarks/checkpoints/save_stall.py [--ranks 2] [--megabytes 512] [--pairs 7] [--folder DIR]

The ranks are processes with gloo. Each holds the same state, of tensors of 1 to 64 MB; so each writes an equal part of
it. In each pair one save is synchronous and one is not, first or second in turn. The training is a matrix product after
the other. The rows state medians over the pairs, of the slowest rank:

- `save`: the synchronous one, from its call to its return, when the checkpoint is on the disk.
- `async_save`: the call only. The ratio of both is what the requirement limits to 5 %.
- `until complete`: from the call of `async_save` until its checkpoint is on the disk, while the training continues.
- `step beside it`: a step while the thread writes, relative to a step without a save. The thread needs a processor:
  with one for each rank, the steps take longer until the save is complete.

The first save of each kind is reported apart: it also allocates the memory and exchanges the plans.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

SIZES = (1, 4, 16, 64)  # MB of the tensors, in turn
Pair = Dict[str, float]


def state_of(megabytes: int) -> Dict[str, Any]:
    import torch

    tensors, left = {}, megabytes
    while left > 0:
        size = min(left, SIZES[len(tensors) % len(SIZES)])
        tensors[f"layer.{len(tensors)}"] = torch.randn(size * 250, 1000)
        left -= size
    return {"model": tensors, "epoch": 3}


def run_rank(options: argparse.Namespace, rank: int) -> None:
    """Print the pairs of this rank."""
    import torch
    import torch.distributed as dist

    from smdp_engine.checkpoint import ShardedCheckpoints

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{options.folder / 'meeting'}", rank=rank, world_size=options.ranks)
    checkpoints = ShardedCheckpoints(options.folder / "saved", keep_last=1)
    state = state_of(options.megabytes)
    left, right = torch.randn(256, 256), torch.randn(256, 256)

    def step() -> float:
        before = time.perf_counter()
        torch.mm(left, right)
        return time.perf_counter() - before

    def synchronous(number: int, pair: Pair) -> None:
        dist.barrier()
        before = time.perf_counter()
        checkpoints.save(2 * number + 1, **state)
        pair["save"] = time.perf_counter() - before

    def asynchronous(number: int, pair: Pair) -> None:
        pair["step_alone"] = statistics.median(step() for _ in range(200))
        dist.barrier()
        before = time.perf_counter()
        checkpoints.async_save(2 * number + 2, **state)
        pair["call"] = time.perf_counter() - before
        beside = []
        pending = checkpoints._pending
        while pending is not None and not pending.done.is_set():
            beside.append(step())
        pair["complete"] = time.perf_counter() - before
        checkpoints.wait()
        pair["step_beside"] = statistics.mean(beside) if beside else pair["step_alone"]

    pairs: List[Pair] = []
    for number in range(options.pairs + 1):
        pair: Pair = {}
        for run in (synchronous, asynchronous) if number % 2 == 0 else (asynchronous, synchronous):
            run(number, pair)
        pairs.append(pair)
    dist.barrier()
    (options.folder / f"rank-{rank}.json").write_text(json.dumps(pairs), encoding="utf-8")
    dist.destroy_process_group()


def measured(options: argparse.Namespace) -> List[Pair]:
    """Each value of each pair, of its slowest rank."""
    arguments = ["--ranks", options.ranks, "--megabytes", options.megabytes, "--pairs", options.pairs]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, *map(str, arguments), "--folder", str(options.folder), "--rank", str(rank)],
            env={**environ, "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(options.ranks)},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(options.ranks)
    ]
    try:
        if any(one.wait(1200) for one in ranks):
            raise SystemExit("a rank has failed")
    finally:
        for one in ranks:
            one.kill()
            one.wait()
    of_ranks = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(options.folder.glob("rank-*.json"))]
    return [{name: max(one[name] for one in pairs) for name in pairs[0]} for pairs in zip(*of_ranks)]


def report(options: argparse.Namespace, pairs: List[Pair]) -> None:
    first, rest = pairs[0], pairs[1:]

    def row(name: str, text: str) -> None:
        print(f"{name:24} {text}", flush=True)

    def spread(name: str, scale: float = 1.0, unit: str = "s") -> str:
        values = [one[name] * scale for one in rest]
        return f"{statistics.median(values):8.3f} {unit}   ({min(values):.3f} to {max(values):.3f})"

    size = options.megabytes
    row("state", f"{size} MB, {options.ranks} ranks, {len(rest)} pairs, {os.cpu_count()} processors, {options.folder}")
    loads = " and ".join(f"{one:.1f}" for one in (options.load, os.getloadavg()[0]))
    row("load", f"{loads} processes want to run (mean of a minute, before and after)")
    row("save", spread("save"))
    row("async_save", spread("call"))
    ratios = [one["call"] / one["save"] for one in rest]
    row("async_save : save", f"{statistics.median(ratios):8.2%}     ({min(ratios):.2%} to {max(ratios):.2%})")
    row("until complete", spread("complete"))
    beside = [one["step_beside"] / one["step_alone"] for one in rest]
    row("step beside it", f"{statistics.median(beside):8.2f} x     ({min(beside):.2f} to {max(beside):.2f})")
    row("first save, async_save", f"{first['save']:8.3f} s, {first['call']:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--megabytes", type=int, default=512, help="of the state of one rank")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: a temporary one")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        run_rank(options, options.rank)
        return
    if options.pairs < 1 or options.ranks < 1 or options.megabytes < 1:
        parser.error("--pairs, --ranks and --megabytes must be 1 or more")
    options.load = os.getloadavg()[0]
    options.folder = Path(tempfile.mkdtemp(prefix="save-stall-", dir=options.folder))
    try:
        report(options, measured(options))
    finally:
        shutil.rmtree(options.folder)


if __name__ == "__main__":
    main()
