import torch
import torch.distributed as dist

from smdp_engine.checkpoint import ShardedCheckpoints, StopFlag

dist.init_process_group("smddp")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
checkpoints, stop = ShardedCheckpoints(keep_last=3), StopFlag()
checkpoints.load()
checkpoints.async_save(1, model=model.state_dict())
checkpoints.wait()
