"""Importing this module registers the torch.distributed backend ``smddp`` of smdp-engine."""

from smdp_engine import torch_backend

torch_backend.register()
