"""Trains with checkpoints. In the first job, rank 1 stops at the place that STOP names; a resumed job does not."""

import hashlib
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, Subset

from smdp_engine import progress

STEPS, BATCH, STOP_STEP = 120, 4, 80
RANK = int(os.environ["RANK"])
WHERE = os.environ.get("STOP") if RANK == 1 and "SMDP_RETRY" not in os.environ else None
CHECKPOINT = Path(os.environ["SMDP_CHECKPOINT_DIR"], "state.pt")


def stop() -> None:
    while True:
        time.sleep(0.5)


class Samples(Dataset):
    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        if WHERE == "loader" and index == STOP_STEP * BATCH:
            stop()
        return torch.sin(torch.arange(8.0) * (index + 1) * (RANK + 1))


def main() -> None:
    dist.init_process_group("smddp")
    torch.manual_seed(7)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    begin = 0
    if CHECKPOINT.exists():
        state = torch.load(CHECKPOINT)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
        print(f"continues at step {begin + 1}", flush=True)
    loader = DataLoader(Subset(Samples(), range(begin * BATCH, STEPS * BATCH)), batch_size=BATCH, num_workers=1)
    loss = torch.zeros(())
    for step, batch in enumerate(loader, begin + 1):
        if WHERE == "computing" and step == STOP_STEP:
            stop()
        if WHERE == "collective" and step == STOP_STEP:
            dist.recv(torch.zeros(1), src=0)
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        progress.step(step, STEPS, loss=loss.item())
        if RANK == 0 and step % 25 == 0:
            written = CHECKPOINT.with_name("state.pt.tmp")
            torch.save(
                {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step},
                written,
            )
            written.replace(CHECKPOINT)
        time.sleep(0.02)
    weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    if RANK == 0:
        progress.emit("result", loss=loss.item(), weights=hashlib.sha256(weights).hexdigest())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
