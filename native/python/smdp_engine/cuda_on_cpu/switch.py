"""Whether CUDA is imitated in this process, and what refuses it."""

import importlib
import os
import sys
from typing import Any

from .not_imitated import PAGE

#: Set by the local cloud's hosts, never by a job on AWS: the entrypoint refuses it there.
VARIABLE = "SMDP_CUDA_ON_CPU"
_SAID = "SMDP_CUDA_ON_CPU_SAID"  # in the environment, for the Pythons that this one starts


class _State:
    installed = False


def is_installed() -> bool:
    return _State.installed


def install() -> None:
    """Imitate CUDA in this process from here on, and say so on rank 0. Calling it again changes nothing.

    Raises:
        RuntimeError: torch has no function modes, or there is a GPU.
    """
    if _State.installed:
        return
    torch: Any = importlib.import_module("torch")
    # torch 1.13 has a mode of that name, but its stack takes no mode for good.
    if int(torch.__version__.split(".")[0]) < 2:
        raise RuntimeError(f"--cuda-on-cpu needs torch 2.0 or newer, this is {torch.__version__} ({PAGE})")
    if torch.cuda.is_available():
        raise RuntimeError(
            f"--cuda-on-cpu is for hosts without a GPU, and this one has {torch.cuda.device_count()}: launch without it"
        )
    importlib.import_module("smdp_engine.cuda_on_cpu.patches").apply()
    _State.installed = True
    _say()


def _say() -> None:
    if os.environ.get("RANK", "0") == "0" and _SAID not in os.environ:
        sys.stderr.write(f"smdp: CUDA is imitated on the CPU; what that leaves out: {PAGE}\n")
    os.environ[_SAID] = "1"


def host_device(device: Any) -> Any:
    """Where a tensor for the ``torch.device`` lies: while CUDA is imitated, the CPU for a GPU."""
    if not _State.installed or device.type != "cuda":
        return device
    return importlib.import_module("torch").device("cpu")
