import torch


def model_fn(model_dir):
    model = torch.nn.Linear(784, 10)
    model.load_state_dict(torch.load(model_dir + "/model.pth", weights_only=True))
    return model
