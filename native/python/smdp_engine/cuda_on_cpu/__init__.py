"""CUDA emulation on the CPU (docs/how-to/cuda-on-cpu.md). Importing this package does not import torch.

``launch --local --cuda-on-cpu`` sets ``VARIABLE``; the entrypoint checks that it is allowed, and every Python process
of a worker calls ``install`` after it imports torch.
"""

from .not_emulated import NotEmulated
from .switch import VARIABLE, host_device, install, is_installed

NotImitated = NotEmulated  # the former name

__all__ = ["VARIABLE", "NotEmulated", "NotImitated", "host_device", "install", "is_installed"]
