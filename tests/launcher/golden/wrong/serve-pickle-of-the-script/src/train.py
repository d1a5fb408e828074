import os

import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(784, 10)


def save_model(model, model_dir):
    torch.save(model, os.path.join(model_dir, "model.pth"))


save_model(Net(), os.environ["SM_MODEL_DIR"])
