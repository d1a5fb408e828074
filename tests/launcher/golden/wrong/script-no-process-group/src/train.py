import os

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.models import resnet50

device = torch.device("cuda")
model = resnet50().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(ImageFolder(os.environ["SM_CHANNEL_TRAIN"]), batch_size=64, shuffle=True)
for epoch in range(90):
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
