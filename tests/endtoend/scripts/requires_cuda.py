"""A typical script for GPUs, which does not start without one. Each rank prints the loss of each step."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--first-generation", default="no")
args = parser.parse_args()

if args.first_generation == "yes":
    import smdistributed.dataparallel.torch.distributed as smdp
    from smdistributed.dataparallel.torch.parallel.distributed import DistributedDataParallel as DDP

    smdp.init_process_group()
    local_rank = smdp.get_local_rank()
else:
    from torch.nn.parallel import DistributedDataParallel as DDP

    dist.init_process_group("smddp")
    local_rank = int(os.environ["LOCAL_RANK"])

if not torch.cuda.is_available():
    raise RuntimeError("this script needs a GPU")
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
torch.backends.cudnn.benchmark = True


def train(precision):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(256, 1, 12, 12), torch.randint(0, 10, (256,)))
    sampler = DistributedSampler(data, dist.get_world_size(), dist.get_rank())
    loader = DataLoader(data, batch_size=16, sampler=sampler, pin_memory=True)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(800, 10)).cuda()
    model = DDP(model, device_ids=[local_rank], output_device=local_rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "float16")
    lowered = torch.autocast("cuda", dtype=getattr(torch, precision), enabled=precision != "float32")
    losses = []
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            inputs = inputs.cuda(non_blocking=True).sub_(0.1).div_(1.1)
            targets = targets.to(device, non_blocking=True)
            with lowered:
                loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total = torch.zeros(1, device=device) + loss.detach()
            dist.all_reduce(total)
            losses.append(total.item() / dist.get_world_size())
    print(precision, *(f"{loss:.9f}" for loss in losses))


start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
train("float32")
train("float16")
train("bfloat16")
end.record()
torch.cuda.synchronize()
print("took", start.elapsed_time(end) > 0, "peak", torch.cuda.max_memory_allocated(device))
