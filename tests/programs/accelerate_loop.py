"""A training loop with Accelerate. The environment selects the backend."""

import injected
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

set_seed(1)
accelerator = Accelerator(gradient_accumulation_steps=2)
model = injected.model(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
inputs = torch.randn(640, 32)
samples = TensorDataset(inputs, inputs[:, :10].argmax(1))
data = DataLoader(injected.training_data(samples, 16), batch_size=16, num_workers=injected.LOADER_WORKERS)
held_out = DataLoader(samples, batch_size=64)
model, optimizer, data, held_out = accelerator.prepare(model, optimizer, data, held_out)
for _epoch in range(2):
    model.train()
    for batch, labels in data:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        mean = accelerator.gather(loss.detach().reshape(1)).mean()
        accelerator.print(f"loss {mean.item():.9f}", flush=True)
    model.eval()
    for batch, labels in held_out:
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(model(batch), labels)
        accelerator.print(f"loss {accelerator.gather(loss.reshape(1)).mean().item():.9f}", flush=True)
accelerator.wait_for_everyone()
accelerator.print(f"backend {torch.distributed.get_backend()}")
accelerator.end_training()
