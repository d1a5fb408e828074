"""DeepSpeed's ZeRO, stages 1 and 2: a small classifier on random numbers."""

import sys

import deepspeed
import injected
import torch

BACKEND, STAGE = sys.argv[1], int(sys.argv[2])
if BACKEND == "smddp":
    import smdistributed.dataparallel.torch.torch_smddp

deepspeed.init_distributed(dist_backend=BACKEND, auto_mpi_discovery=False)
rank = torch.distributed.get_rank()
torch.manual_seed(1)
model = injected.model(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
engine, _optimizer, _loader, _scheduler = deepspeed.initialize(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
    config={
        "train_micro_batch_size_per_gpu": 16,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": STAGE, "reduce_bucket_size": 1000, "allgather_bucket_size": 1000},
    },
)
generator = torch.Generator().manual_seed(100 + rank)
for _step in range(20):
    inputs = torch.randn(16, 32, generator=generator)
    loss = torch.nn.functional.cross_entropy(engine(inputs), inputs[:, :10].argmax(1))
    engine.backward(loss)
    engine.step()
    if rank == 0:
        print(f"loss {loss.item():.9f}", flush=True)
if rank == 0:
    print(f"backend {torch.distributed.get_backend()}")
engine.destroy()
torch.distributed.destroy_process_group()
