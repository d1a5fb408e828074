import torch


def model_fn(model_dir):
    return torch.load(model_dir + "/model.pth", map_location="cpu")
