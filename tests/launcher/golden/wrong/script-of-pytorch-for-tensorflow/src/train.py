import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torchvision.datasets import ImageFolder
from torchvision.models import resnet50

dist.init_process_group("smddp")
dataset = ImageFolder(os.environ["SM_CHANNEL_TRAIN"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(resnet50().to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=64, sampler=sampler)
for epoch in range(90):
    sampler.set_epoch(epoch)
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pt"))
