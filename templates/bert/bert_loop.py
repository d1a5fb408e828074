"""Fine-tunes a BERT that classifies reviews, in a loop of its own with PyTorch's DistributedDataParallel.

bert_trainer.py does the same with the Trainer of Hugging Face. Each worker computes on the GPU of its LOCAL_RANK, or on
the CPU if there is no GPU. ``--precision fp16`` or ``bf16``, or the key ``amp`` of the job file, turns automatic mixed
precision on. The script also runs alone: ``python bert_loop.py --train FOLDER --test FOLDER --model-dir FOLDER``.
"""

import argparse
import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from reviews import Reviews, load_model
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from transformers import DataCollatorWithPadding, PreTrainedModel, set_seed

from smdp_engine import progress

PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def parse_arguments() -> argparse.Namespace:
    environ = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model_name_or_path", default="", help="a folder, a channel or a name on the Hub; empty: a small random BERT"
    )
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=16, help="reviews in one step, on each worker")
    parser.add_argument("--lr", type=float, default=5e-5)
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
    """The context of the forward pass. Only it computes in lower precision; weights and their gradients are float32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=PRECISIONS[precision])


def train(arguments: argparse.Namespace, model: torch.nn.Module, reviews: Reviews, collate, device) -> None:
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    sampler = DistributedSampler(reviews, num_replicas=world_size, rank=rank, seed=arguments.seed)
    batches = DataLoader(reviews, arguments.batch_size, sampler=sampler, collate_fn=collate)
    total, step = arguments.epochs * len(batches), 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total)
    # Keeps small gradients of fp16 from becoming zero. With the other precisions it does nothing.
    scaler = torch.amp.GradScaler(device.type, enabled=arguments.precision == "fp16")
    model.train()
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for batch in batches:
            with forward_context(arguments.precision, device):
                loss = model(**batch.to(device)).loss
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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


@torch.no_grad()
def accuracy(model: PreTrainedModel, reviews: Reviews, collate, device: torch.device) -> float:
    model.eval()
    right = 0
    for batch in DataLoader(reviews, 100, collate_fn=collate):
        labels = batch.pop("labels").to(device)
        right += (model(**batch.to(device)).logits.argmax(1) == labels).sum().item()
    return right / len(reviews)


def main() -> None:
    arguments = parse_arguments()
    set_seed(arguments.seed)
    device = this_device()
    if int(os.environ.get("RANK", "0")) == 0:
        print(f"computes on {device} in {arguments.precision}")
    tokenizer, plain = load_model(arguments.model_name_or_path, arguments.train)
    model: torch.nn.Module = plain.to(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        if arguments.backend == "smddp":
            import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 - registers the backend
        dist.init_process_group(arguments.backend)
        model = DistributedDataParallel(model)
    collate = DataCollatorWithPadding(tokenizer)
    train(arguments, model, Reviews(arguments.train, tokenizer), collate, device)
    if int(os.environ.get("RANK", "0")) == 0:
        held_out = Reviews(arguments.test, tokenizer)
        share = accuracy(plain, held_out, collate, device)
        print(f"accuracy {share:.4f} on {len(held_out)} reviews that are not in the training channel")
        progress.emit("result", accuracy=share, reviews=len(held_out))
        plain.save_pretrained(arguments.model_dir)
        tokenizer.save_pretrained(arguments.model_dir)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
