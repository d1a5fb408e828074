"""Stands for a serving script."""

import torch


def model_fn(model_dir):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.load(f"{model_dir}/model.pt", map_location=device, weights_only=True)
