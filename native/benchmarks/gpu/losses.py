"""Trains a transformer with smddp and with NCCL or Gloo, in fp32, fp16 and bf16, and compares the losses of all steps.

All computing on the GPU is deterministic, so the runs differ only by the order in which gradients are added. Adding in
another order changes the last bits of a sum, and the next steps magnify this: the limit is the largest relative
difference of a loss over all steps. NCCL is the other backend where each rank has a GPU of its own, else Gloo.

Example: ``python native/benchmarks/gpu/losses.py --layout 2x2``
"""

import argparse
import math
import sys
from typing import Any, Dict, List

import figures
import job

#: Set before the first run on a GPU. fp16 and bf16 round each value to 11 and 8 bits.
BARS = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 2e-2}
LIMIT_S = 400


def parse() -> argparse.Namespace:
    parser = job.parser(__doc__)
    parser.add_argument("--layout", default="2x2", help="hosts x ranks, or the ranks of each host: 3+1")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a rank in a step")
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--precisions", default="fp32,fp16,bf16")
    # Of a rank:
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    parser.add_argument("--precision", help=argparse.SUPPRESS)
    return job.parsed(parser)


def train(arguments: argparse.Namespace) -> None:
    import device
    import torch
    import torch.distributed as dist
    import transformer
    from torch.nn.parallel import DistributedDataParallel

    import smdp_engine.torch  # noqa: F401 - registers the backend

    device.exact_arithmetic()
    gpu = device.this_gpu(arguments.device)
    dist.init_process_group(arguments.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    size = transformer.SMALL if arguments.small else transformer.LARGE
    torch.manual_seed(1)
    model = DistributedDataParallel(transformer.Transformer(size).to(gpu))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3 if arguments.small else 3e-4)
    scaler = transformer.scaler(arguments.precision)
    # Few batches again and again, so that the loss falls.
    mine = transformer.batches(size, world, arguments.batch, arguments.length, 3)[rank]
    losses: List[float] = []
    for step in range(arguments.steps):
        tokens = mine[step % len(mine)].to(gpu, non_blocking=True)
        with transformer.lowered(arguments.precision):
            loss = model(tokens)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    job.report(
        losses=losses,
        parameters=transformer.parameters(model.module),
        scale=scaler.get_scale(),
        on_gpu=all(one.is_cuda for one in model.parameters()),
        gigabytes=torch.cuda.max_memory_allocated() / 1e9,
    )
    dist.barrier()
    dist.destroy_process_group()


def run(arguments: argparse.Namespace, backend: str, precision: str) -> Dict[str, Any]:
    command = ["--backend", backend, "--precision", precision, "--device", arguments.device]
    for name in ("steps", "batch", "length"):
        command += [f"--{name}", str(getattr(arguments, name))]
    command += ["--small"] if arguments.small else []
    found = job.reports(
        "losses.py", job.layout(arguments.layout), command, limit_s=LIMIT_S, environment=job.options(arguments)
    )
    same = [one for one in found if (one["losses"], one["scale"]) == (found[0]["losses"], found[0]["scale"])]
    if len(same) != len(found) or not all(one["on_gpu"] for one in found):
        raise job.JobFailedError(f"{backend}, {precision}: the ranks differ, or a parameter is not on the GPU: {found}")
    return found[0]


def other_backend(arguments: argparse.Namespace, gpus: int) -> str:
    import torch.distributed as dist

    enough = max(job.layout(arguments.layout)) <= gpus and len(job.layout(arguments.layout)) == 1
    return "nccl" if arguments.device == "cuda" and enough and dist.is_nccl_available() else "gloo"


def largest_difference(ours: List[float], theirs: List[float]) -> float:
    """NaN if a loss of either run is not a number."""
    differences = [abs(a - b) / abs(b) for a, b in zip(ours, theirs)]
    return float("nan") if any(math.isnan(one) for one in differences) else max(differences)


def measure(arguments: argparse.Namespace) -> List[figures.Figure]:
    import torch

    gpus = torch.cuda.device_count() if arguments.device == "cuda" else 0
    other = other_backend(arguments, gpus)
    found = []
    for precision in arguments.precisions.split(","):
        name = f"transformer, {precision}: difference of a loss from {other}"
        try:
            ours, theirs = (run(arguments, backend, precision) for backend in ("smddp", other))
        except job.JobFailedError as error:
            found.append(figures.Figure(name, float("nan"), at_most=BARS[precision], note=_one_line(error)))
            continue
        millions = ours["parameters"] / 1e6
        note = (
            f"{millions:.0f} M parameters, {arguments.layout} ranks, {arguments.steps} steps, "
            f"loss {ours['losses'][0]:.4f} to {ours['losses'][-1]:.4f}, {ours['gigabytes']:.1f} GB a rank"
        )
        difference = largest_difference(ours["losses"], theirs["losses"])
        details = {"smddp": ours["losses"], other: theirs["losses"]}
        found.append(figures.Figure(name, difference, at_most=BARS[precision], note=note, details=details))
        fell = ours["losses"][-1] / ours["losses"][0]
        found.append(figures.Figure(f"transformer, {precision}: last loss / first loss", fell, at_most=0.99))
    return found


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[-300:]


if __name__ == "__main__":
    sys.exit(job.main(parse(), train, measure))
