"""Whether the job's workers emulate CUDA on the CPU, which only local runs may request."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Mapping

from smdp_entrypoint.contract.errors import DeviceError

VARIABLE = "SMDP_CUDA_ON_CPU"
_LOCAL_ACCOUNT = "000000000000"  # the account of the local cloud; no AWS account has this number


def is_requested(environ: Mapping[str, str]) -> bool:
    return environ.get(VARIABLE) == "1"


def check(environ: Mapping[str, str], gpus: int) -> None:
    """Raises DeviceError if the job requests CUDA emulation where it is not allowed or not possible."""
    if is_requested(environ):
        reason = _rejection(environ, gpus)
        if reason:
            raise DeviceError(f"CUDA cannot be emulated on this host: {reason}.")


def _rejection(environ: Mapping[str, str], gpus: int) -> str | None:
    arn = environ.get("TRAINING_JOB_ARN")
    if arn and arn.split(":")[4:5] != [_LOCAL_ACCOUNT]:
        return f"the job runs on AWS ({arn}); remove {VARIABLE} from its environment"
    if gpus:
        return f"the host has {gpus} GPUs; launch without --cuda-on-cpu"
    importlib.invalidate_caches()  # the job's requirements may have been installed just now
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed, and the emulation supports torch only; add torch to requirements.txt"
    engine = importlib.util.find_spec("smdp_engine")
    folders = engine.submodule_search_locations if engine is not None else None
    if not folders:
        return "smdp-engine, which provides the emulation, is not installed; run pip install ./native for the workers"
    if not (Path(folders[0]) / "cuda_on_cpu").is_dir():
        return "the installed smdp-engine is too old for it; run pip install ./native for the workers"
    return None
