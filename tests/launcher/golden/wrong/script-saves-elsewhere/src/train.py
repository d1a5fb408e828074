import torch

model = torch.nn.Linear(10, 1)
torch.save(model.state_dict(), "model.pt")
