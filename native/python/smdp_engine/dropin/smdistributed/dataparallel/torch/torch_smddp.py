"""Importing this module registers the torch.distributed backend ``smddp``, here served by smdp-engine."""

from smdp_engine import torch_backend

torch_backend.register()
