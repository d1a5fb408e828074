import os

import torch


def model_fn(model_dir):
    with open(os.path.join(model_dir, "model.pth"), "rb") as file:
        return torch.load(file, map_location="cpu")
