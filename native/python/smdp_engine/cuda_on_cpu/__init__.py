"""CUDA imitated on the CPU, for scripts that insist on it (docs/cuda-on-cpu.md). Importing this imports no torch.

``launch --local --cuda-on-cpu`` sets ``VARIABLE``; the entrypoint checks that it may be, and every Python of a worker
calls ``install`` when it has imported torch.
"""

from .not_imitated import NotImitated
from .switch import VARIABLE, host_device, install, is_installed

__all__ = ["VARIABLE", "NotImitated", "host_device", "install", "is_installed"]
