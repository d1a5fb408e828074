import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()

torch.cuda.set_device(args.local_rank)
dist.init_process_group("smddp")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(1, 2).cuda()).sum().backward()
optimizer.step()
