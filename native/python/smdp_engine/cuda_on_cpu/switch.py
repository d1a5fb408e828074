"""Turns the CUDA emulation on in this process."""

import importlib
import os
import sys
from typing import Any

from .not_emulated import PAGE

#: The local cloud's hosts set it; in a job on AWS the entrypoint refuses it.
VARIABLE = "SMDP_CUDA_ON_CPU"
_REPORTED = "SMDP_CUDA_ON_CPU_SAID"  # in the environment of the Python processes that this one starts


class _State:
    installed = False


def is_installed() -> bool:
    return _State.installed


def install() -> None:
    """Turn the emulation on in this process, with a message on rank 0. A second call has no effect.

    Raises:
        RuntimeError: torch is older than 2.0, or there is a GPU.
    """
    if _State.installed:
        return
    torch: Any = importlib.import_module("torch")
    # torch 1.13 has such a mode, but none can stay active.
    if int(torch.__version__.split(".")[0]) < 2:
        raise RuntimeError(f"--cuda-on-cpu needs torch 2.0 or newer, this is {torch.__version__} ({PAGE})")
    if torch.cuda.is_available():
        raise RuntimeError(
            f"--cuda-on-cpu is for hosts without a GPU, this host has {torch.cuda.device_count()}: launch without it"
        )
    importlib.import_module("smdp_engine.cuda_on_cpu.patches").apply()
    _State.installed = True
    if os.environ.get("RANK", "0") == "0" and _REPORTED not in os.environ:
        sys.stderr.write(f"smdp: CUDA is emulated on the CPU; for its limits see {PAGE}\n")
    os.environ[_REPORTED] = "1"


def host_device(device: Any) -> Any:
    """The device of a tensor for the ``torch.device``: with CUDA emulation, the CPU for a GPU."""
    if not _State.installed or device.type != "cuda":
        return device
    return importlib.import_module("torch").device("cpu")
