"""Whether the job's workers are to imitate CUDA, which runs on a person's own machine may ask for, and nothing else."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Mapping

from smdp_entrypoint.contract.errors import DeviceError

VARIABLE = "SMDP_CUDA_ON_CPU"
_LOCAL_ACCOUNT = "000000000000"  # the local cloud's; no account of AWS has this number


def is_asked_for(environ: Mapping[str, str]) -> bool:
    return environ.get(VARIABLE) == "1"


def check(environ: Mapping[str, str], gpus: int) -> None:
    """Raises DeviceError if the workers are to imitate CUDA and must not, or cannot."""
    if is_asked_for(environ):
        reason = _objection(environ, gpus)
        if reason:
            raise DeviceError(f"CUDA cannot be imitated here: {reason}.")


def _objection(environ: Mapping[str, str], gpus: int) -> str | None:
    arn = environ.get("TRAINING_JOB_ARN")
    if arn and arn.split(":")[4:5] != [_LOCAL_ACCOUNT]:
        return f"this job runs on AWS, take {VARIABLE} out of its environment ({arn})"
    if gpus:
        return f"this host has {gpus} GPUs, launch without --cuda-on-cpu"
    importlib.invalidate_caches()  # the job's requirements may have been installed just now
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed, only scripts that use it can go without a GPU: name it in requirements.txt"
    engine = importlib.util.find_spec("smdp_engine")
    folders = engine.submodule_search_locations if engine is not None else None
    if not folders:
        return "smdp-engine is not installed, which imitates it: pip install ./native where the workers run"
    if not (Path(folders[0]) / "cuda_on_cpu").is_dir():
        return "the smdp-engine that is installed is too old for it: install it again"
    return None
