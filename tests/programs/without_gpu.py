"""Runs a script of Hugging Face's Trainer without a GPU.

Started for SMDDP, the Trainer names the GPU of its local rank (``device_ids``) whatever the model is on, and torch
refuses that for a model on the CPU. Leaving it out is all that is changed here.
"""

import runpy
import sys

import torch

wrap = torch.nn.parallel.DistributedDataParallel.__init__


def wrap_on_cpu(self, module, device_ids=None, **others):
    wrap(self, module, **others)


torch.nn.parallel.DistributedDataParallel.__init__ = wrap_on_cpu
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
