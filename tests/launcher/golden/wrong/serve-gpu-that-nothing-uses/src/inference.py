import torch


def model_fn(model_dir):
    model = torch.nn.Linear(784, 10)
    model.load_state_dict(torch.load(model_dir + "/model.pth", map_location="cpu", weights_only=True))
    return model.eval()


def predict_fn(data, model):
    with torch.inference_mode():
        return model(data)
