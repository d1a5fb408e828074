import os

import torch

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(784, 10).to(device)
torch.save(model.state_dict(), os.path.join(os.environ["SM_MODEL_DIR"], "model.pth"))
