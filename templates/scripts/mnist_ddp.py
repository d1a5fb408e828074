"""Trains a small convolutional network on MNIST digits with PyTorch's own DistributedDataParallel.

An ordinary script: it reads its rank from RANK and WORLD_SIZE and its data from the channels, and writes its model and
checkpoints to SageMaker's folders. Each worker computes on the GPU of its LOCAL_RANK, or on the CPU if there is no GPU.
``--precision fp16`` or ``bf16``, or the key ``amp`` of the job file, turns automatic mixed precision on. It also runs
alone: ``python mnist_ddp.py --train FOLDER --test FOLDER --model-dir FOLDER``. It needs torch 1.13 or later.
"""

import argparse
import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from smdp_engine import progress

CHECKPOINT = "checkpoint.pt"
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def parse_arguments() -> argparse.Namespace:
    environ = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=128, help="digits in one step, on all workers together")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="smddp", help="the backend of torch.distributed, such as smddp or gloo")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default=environ("SMDP_AMP", "fp32"), help="fp16 and bf16: mixed precision"
    )
    parser.add_argument("--steps", type=int, default=0, help="stop after this number of steps; 0 for all epochs")
    parser.add_argument("--train", type=Path, default=environ("SM_CHANNEL_TRAIN"))
    parser.add_argument("--test", type=Path, default=environ("SM_CHANNEL_TEST"))
    parser.add_argument("--model-dir", type=Path, default=environ("SM_MODEL_DIR"))
    parser.add_argument("--checkpoint-dir", type=Path, default=environ("SMDP_CHECKPOINT_DIR"))
    parser.add_argument("--checkpoint-every", type=int, default=100, help="steps between two checkpoints")
    arguments = parser.parse_args()
    for name in ("train", "test", "model_dir"):
        if getattr(arguments, name) is None:
            parser.error(f"--{name.replace('_', '-')} is required outside a training job")
    return arguments


def read_channel(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as (N, 1, 28, 28) floats around zero, and labels as (N,)."""
    images = (folder / "images.idx3").read_bytes()
    labels = (folder / "labels.idx1").read_bytes()
    magic, count, height, width = struct.unpack(">IIII", images[:16])
    if magic != 0x803 or len(images) != 16 + count * height * width or len(labels) != 8 + count:
        raise ValueError(f"{folder} does not contain images.idx3 and labels.idx1 of the same digits")
    pixels = torch.frombuffer(bytearray(images[16:]), dtype=torch.uint8).view(count, 1, height, width)
    return (pixels.float() / 255 - 0.1307) / 0.3081, torch.frombuffer(bytearray(labels[8:]), dtype=torch.uint8).long()


def make_model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    # Activations are smooth, so a rounding difference in a sum cannot switch a unit on or off. Runs with different
    # numbers of workers therefore differ only by rounding.
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.Tanh(),
        nn.Conv2d(16, 32, 5, stride=2, padding=2),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 64),
        nn.Tanh(),
        nn.Linear(64, 10),
    )


def batches(count: int, batch_size: int, epochs: int, seed: int) -> Iterator[torch.Tensor]:
    """The indices of each global batch, the same on every worker and for every number of workers."""
    for epoch in range(epochs):
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed + epoch))
        for start in range(0, count - batch_size + 1, batch_size):
            yield order[start : start + batch_size]


def save(path: Path, state: object) -> None:
    """Write another file and rename it, so that no process reads a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def this_device() -> torch.device:
    """The GPU of this worker, or the CPU. Workers share GPUs if the host has fewer GPUs than workers."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def to_device(batch: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy from pinned memory does not block the host, which prepares the step meanwhile."""
    return batch.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else batch


def forward_context(precision: str, device: torch.device):
    """The context of the forward pass. Only it computes in lower precision; weights and their gradients are float32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=PRECISIONS[precision])


def make_scaler(precision: str, device: torch.device):
    """The scaler that keeps small gradients of fp16 from becoming zero. With the other precisions it does nothing."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    if precision == "fp16" and device.type != "cuda":
        raise ValueError("--precision fp16 needs a GPU, or torch 2.3 or later: use bf16 or fp32")
    return torch.cuda.amp.GradScaler(enabled=precision == "fp16")  # torch before 2.3


def train(arguments: argparse.Namespace, model: nn.Module, device: torch.device, rank: int, world_size: int) -> None:
    images, labels = read_channel(arguments.train)
    if arguments.batch_size % world_size:
        raise ValueError(f"--batch-size {arguments.batch_size} does not divide equally among {world_size} workers")
    total = arguments.epochs * (len(images) // arguments.batch_size)
    total = min(total, arguments.steps) if arguments.steps else total
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    scaler = make_scaler(arguments.precision, device)
    done = resume(arguments, model, optimizer, scaler)
    for step, batch in enumerate(batches(len(images), arguments.batch_size, arguments.epochs, arguments.seed), 1):
        if step > total:
            break
        if step <= done:
            continue
        mine = batch.chunk(world_size)[rank]
        inputs, targets = to_device(images[mine], device), to_device(labels[mine], device)
        with forward_context(arguments.precision, device):
            loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        mean = loss.detach().clone()
        if world_size > 1:
            dist.all_reduce(mean)
            mean /= world_size
        progress.step(step, total, loss=mean.item())
        if rank == 0 and arguments.checkpoint_dir and (step % arguments.checkpoint_every == 0 or step == total):
            parts = {"model": model, "optimizer": optimizer, "scaler": scaler}
            state = {"step": step, **{name: part.state_dict() for name, part in parts.items()}}
            save(arguments.checkpoint_dir / CHECKPOINT, state)


def resume(arguments: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, scaler) -> int:
    """Load the checkpoint if there is one, and return the number of its steps."""
    path = arguments.checkpoint_dir / CHECKPOINT if arguments.checkpoint_dir else None
    if path is None or not path.exists():
        return 0
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    if state.get("scaler") and scaler.is_enabled():
        scaler.load_state_dict(state["scaler"])
    print(f"continues after step {state['step']}")
    return int(state["step"])


@torch.no_grad()
def accuracy(model: nn.Module, device: torch.device, folder: Path) -> tuple[float, int]:
    images, labels = (one.to(device) for one in read_channel(folder))
    right = (model(images).argmax(1) == labels).sum().item()
    return right / len(labels), len(labels)


def main() -> None:
    arguments = parse_arguments()
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = this_device()
    if rank == 0:
        print(f"computes on {device} in {arguments.precision}")
    model = make_model(arguments.seed).to(device)
    if world_size > 1:
        if arguments.backend == "smddp":
            import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
        dist.init_process_group(arguments.backend)
        model = DistributedDataParallel(model)
    train(arguments, model, device, rank, world_size)
    if rank == 0:
        plain = model.module if world_size > 1 else model
        share, count = accuracy(plain, device, arguments.test)
        print(f"accuracy {share:.3f} on {count} digits that are not in the training channel")
        progress.emit("result", accuracy=share, digits=count)
        # On the CPU, so that it loads on a machine without a GPU.
        save(arguments.model_dir / "model.pt", plain.cpu().state_dict())
    if world_size > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
