"""`python -m smdp_launch.doctor.probe STEP...` imports a framework and the engine in a process of its own.

A framework can crash or hang when it is imported, so `frameworks` starts this program and waits with a deadline. It
writes one JSON line for each step: before the step `{"step": NAME}`, after it `{"step": NAME, ...results}`. A step that
fails has `error`, and the program ends.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

_TIMEOUT = timedelta(seconds=30)  # for the other process to join, and for a sum
_FIRST, _LAST = 150, 350  # characters of a long error: its end often has the cause
_ELEMENTS = 1024


def _torch() -> dict[str, Any]:
    torch: Any = importlib.import_module("torch")
    cuda = getattr(torch.version, "cuda", None)
    gpus = torch.cuda.device_count() if cuda is not None else 0
    return {"version": torch.__version__, "cuda": cuda, "hip": getattr(torch.version, "hip", None), "gpus": gpus}


def _tensorflow() -> dict[str, Any]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow: Any = importlib.import_module("tensorflow")
    build = dict(tensorflow.sysconfig.get_build_info())
    return {
        "version": tensorflow.__version__,
        "cuda": build.get("cuda_version") if build.get("is_cuda_build") else None,
        "hip": build.get("rocm_version") if build.get("is_rocm_build") else None,
    }


def _engine() -> dict[str, Any]:
    engine: Any = importlib.import_module("smdp_engine")
    return {"build": engine.build()}


def _torch_adapter() -> dict[str, Any]:
    return _adapter("torch", lambda: importlib.import_module("smdp_engine.torch_backend").adapter())


def _tensorflow_adapter() -> dict[str, Any]:
    return _adapter("tensorflow", lambda: importlib.import_module("smdp_engine.tensorflow.library").operations())


def _adapter(framework: str, load: Callable[[], Any]) -> dict[str, Any]:
    """Load the compiled adapter. `fits`: the versions that the engine has adapters for. `builds`: none fits, and the
    command that builds one now; the first use builds it otherwise, so it is not loaded here."""
    verdict, fits = _verdict(framework)
    state = getattr(verdict, "state", None)
    if state == "buildable":
        return {"fits": fits, "builds": verdict.command}
    if state == "missing":
        return {"error": verdict.sentence, "fits": fits, "command": verdict.command}
    try:
        load()
    except (ImportError, OSError) as error:
        return {"error": _text(error), "fits": fits}
    return {"fits": fits}


def _verdict(framework: str) -> tuple[Any, list[str]]:
    """What the engine says of its adapters, and the versions of those that it brings."""
    try:
        adapters: Any = importlib.import_module("smdp_engine.adapters")
    except ImportError:  # an engine with one adapter
        return None, _built_for(framework)
    shipped = [one.version for one in adapters.shipped() if one.framework == framework]
    return adapters.check(framework), [f"{one}.*" if one.count(".") == 1 else one for one in dict.fromkeys(shipped)]


def _built_for(framework: str) -> list[str]:
    if framework != "torch":
        return []
    try:
        return [str(importlib.import_module("smdp_engine._torch").built_for)]
    except ImportError:
        return []


def _sum() -> dict[str, Any]:
    """Sum in both processes of the group: once in the shared memory of one host, once over the network of two."""
    if "builds" in _torch_adapter():
        return {"omitted": True}
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    importlib.import_module("smdp_engine.torch_backend").register()
    rank, folder = int(os.environ["RANK"]), os.environ["SMDP_PROBE_FOLDER"]
    for hosts in (1, 2):
        os.environ["SMDP_HOST_ID"] = f"doctor-{rank % hosts}"
        where = f"file://{folder}/hosts-{hosts}"
        distributed.init_process_group("smddp", init_method=where, rank=rank, world_size=2, timeout=_TIMEOUT)
        values = torch.arange(_ELEMENTS, dtype=torch.float32) + rank
        distributed.all_reduce(values)
        expected = 2 * torch.arange(_ELEMENTS, dtype=torch.float32) + 1
        if not torch.equal(values, expected):
            return {"error": f"the sum of two processes on {hosts} host(s) is wrong"}
        distributed.destroy_process_group()
    return {}


STEPS: dict[str, Callable[[], dict[str, Any]]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "engine": _engine,
    "torch adapter": _torch_adapter,
    "tensorflow adapter": _tensorflow_adapter,
    "sum": _sum,
}


def _text(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _FIRST + _LAST else f"{text[:_FIRST]} ... {text[-_LAST:]}"


def main(steps: list[str]) -> int:
    # Libraries print to standard output. Their output is sent to standard error.
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for step in steps:
        results.write(json.dumps({"step": step}) + "\n")
        try:
            result = STEPS[step]()
        except BaseException as error:  # whatever the import of a broken package raises
            result = {"error": _text(error)}
        results.write(json.dumps({"step": step, "done": True, **result}) + "\n")
        if "error" in result:
            return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a broken library may crash or hang while the interpreter ends
