import torch
from accelerate import Accelerator

accelerator = Accelerator(mixed_precision="fp8")
print(torch.__version__)
