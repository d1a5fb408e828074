"""Lightning's Trainer with its DDP strategy: a small classifier on random numbers."""

import os
import sys

import injected
import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, TensorDataset

BACKEND = sys.argv[1]
if BACKEND == "smddp":
    import smdistributed.dataparallel.torch.torch_smddp


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
        self.layers = injected.model(layers)

    def training_step(self, batch, batch_index):
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(inputs), labels)
        self.log("train_loss", loss, sync_dist=True)
        if self.global_rank == 0:
            print(f"loss {loss.item():.9f}", flush=True)
        return loss

    def validation_step(self, batch, batch_index):
        inputs, labels = batch
        self.log("val_loss", torch.nn.functional.cross_entropy(self.layers(inputs), labels), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


lightning.seed_everything(1)
inputs = torch.randn(640, 32)
data = TensorDataset(inputs, inputs[:, :10].argmax(1))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    num_nodes=2,
    strategy=DDPStrategy(process_group_backend=BACKEND),
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(
    Classifier(),
    DataLoader(injected.training_data(data, 16), batch_size=16, num_workers=injected.LOADER_WORKERS),
    DataLoader(data, batch_size=64),
)
if trainer.is_global_zero:
    print(f"loss {trainer.callback_metrics['val_loss'].item():.9f}")
    print(f"backend {torch.distributed.get_backend()}")
