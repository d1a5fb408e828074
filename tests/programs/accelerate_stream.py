"""A training loop with Accelerate on a data set that is read in sequence: rank 0 reads it for all ranks."""

import injected
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, IterableDataset

SAMPLES = 640


class Stream(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(1)
        inputs = torch.randn(SAMPLES, 32, generator=generator)
        data = injected.training_data(inputs, 64)  # rank 0 reads the batches of all four ranks
        for index in range(SAMPLES):
            sample = data[index]
            yield sample, sample[:10].argmax()


set_seed(1)
accelerator = Accelerator()
model = injected.model(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = DataLoader(Stream(), batch_size=16, num_workers=injected.LOADER_WORKERS)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for _epoch in range(2):
    for batch, labels in data:
        loss = torch.nn.functional.cross_entropy(model(batch), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        mean = accelerator.gather(loss.detach().reshape(1)).mean()
        accelerator.print(f"loss {mean.item():.9f}", flush=True)
accelerator.print(f"backend {torch.distributed.get_backend()}")
accelerator.end_training()
