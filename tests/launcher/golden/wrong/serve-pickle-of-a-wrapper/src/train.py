import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("smddp")
model = DDP(torch.nn.Linear(784, 10).to("cuda"))
if dist.get_rank() == 0:
    torch.save(model, os.path.join(os.environ["SM_MODEL_DIR"], "model.pth"))
