"""Trains a Mask R-CNN of torchvision that finds shapes in images, with PyTorch's DistributedDataParallel.

Each worker computes on the GPU of its LOCAL_RANK, or on the CPU if there is no GPU. ``--precision fp16`` or ``bf16``,
or the key ``amp`` of the job file, turns automatic mixed precision on. The script also runs alone:
``python detection.py --train FOLDER --test FOLDER --model-dir FOLDER``.
"""

import argparse
import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from maskrcnn import Shapes, count_found, detect, layers_of, make_model
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from smdp_engine import progress

PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def parse_arguments() -> argparse.Namespace:
    environ = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["small", "resnet50"], default="small")
    parser.add_argument("--side", type=int, default=64, help="pixels to which images are scaled")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=4, help="images in one step, on each worker")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="smddp", help="the backend of torch.distributed, such as smddp or gloo")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default=environ("SMDP_AMP", "fp32"), help="fp16 and bf16: mixed precision"
    )
    parser.add_argument("--train", type=Path, default=environ("SM_CHANNEL_TRAIN"))
    parser.add_argument("--test", type=Path, default=environ("SM_CHANNEL_TEST"))
    parser.add_argument("--model-dir", type=Path, default=environ("SM_MODEL_DIR"))
    arguments = parser.parse_args()
    for name in ("train", "test", "model_dir"):
        if getattr(arguments, name) is None:
            parser.error(f"--{name.replace('_', '-')} is required outside a training job")
    return arguments


def this_device() -> torch.device:
    """The GPU of this worker, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def forward_context(precision: str, device: torch.device):
    """The context of layers that compute in lower precision; weights and their gradients are float32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=PRECISIONS[precision])


def lower(layers: nn.Module, precision: str, device: torch.device) -> None:
    """Let the layers train in lower precision, and return float32. bf16 has too few digits for the pixels of boxes."""
    forward = layers.forward

    def lowered(*inputs):
        if not layers.training:
            return forward(*inputs)
        with forward_context(precision, device):
            return to_float32(forward(*inputs))

    layers.forward = lowered


def to_float32(value):
    """The tensors of nested lists, tuples and dictionaries as float32."""
    if isinstance(value, torch.Tensor):
        return value.float()
    if isinstance(value, dict):
        return {key: to_float32(one) for key, one in value.items()}
    return type(value)(to_float32(one) for one in value)


def train(arguments: argparse.Namespace, model: torch.nn.Module, device: torch.device) -> None:
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    shapes = Shapes(arguments.train)
    sampler = DistributedSampler(shapes, num_replicas=world_size, rank=rank, seed=arguments.seed)
    # Images have different numbers of objects, so a batch is a list.
    batches = DataLoader(shapes, arguments.batch_size, sampler=sampler, collate_fn=list, drop_last=True)
    total, step = arguments.epochs * len(batches), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total)
    # Keeps small gradients of fp16 from becoming zero. With the other precisions it does nothing.
    scaler = torch.amp.GradScaler(device.type, enabled=arguments.precision == "fp16")
    model.train()
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for batch in batches:
            images = [image.to(device) for image, _ in batch]
            targets = [{key: value.to(device) for key, value in target.items()} for _, target in batch]
            # Of the proposals, the boxes and the masks.
            loss = torch.stack(list(model(images, targets).values())).sum()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scale = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            # The scaler skips a step with infinite gradients, and lowers its scale.
            if scaler.get_scale() >= scale:
                schedule.step()
            mean = loss.detach().clone()
            if world_size > 1:
                dist.all_reduce(mean)
            step += 1
            progress.step(step, total, loss=mean.item() / world_size)


def evaluate(model: torch.nn.Module, folder: Path) -> None:
    """Print the share of objects that are found, and the share of answers that are right."""
    model.eval()
    found = objects = answers = 0
    for image, target in Shapes(folder):
        answer = detect(model, image)
        found += count_found(answer["boxes"], answer["labels"], target)
        objects, answers = objects + len(target["labels"]), answers + len(answer["labels"])
    print(f"found {found} of {objects} objects that are not in the training channel, with {answers} answers")
    progress.emit("result", found=found / objects, objects=objects, answers=answers)


def main() -> None:
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    device = this_device()
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"computes on {device} in {arguments.precision}")
    plain = make_model(arguments.model, arguments.side).to(device)
    if arguments.precision != "fp32":
        for layers in layers_of(plain):
            lower(layers, arguments.precision, device)
    model: torch.nn.Module = plain
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if arguments.backend == "smddp":
            import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
        dist.init_process_group(arguments.backend)
        model = DistributedDataParallel(plain)
    train(arguments, model, device)
    if int(os.environ.get("RANK", "0")) == 0:
        evaluate(plain, arguments.test)
        arguments.model_dir.mkdir(parents=True, exist_ok=True)
        saved = {"model": arguments.model, "side": arguments.side, "weights": plain.cpu().state_dict()}
        torch.save(saved, arguments.model_dir / "model.pt")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
