"""Every Python process of a worker imports this module. After `import torch` it registers the backend `smddp`, installs
the CUDA emulation where the job requests it, and installs the hooks that measure a rank.

In AWS's containers a script must import `smdistributed.dataparallel.torch.torch_smddp` for that, and many scripts do
not. The registration follows the complete import of torch, in every version of torch. The `sitecustomize` that this
module hides runs too.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, Optional


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds `torch` as usual, and has its loader register the backend after the import."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> "Optional[importlib.machinery.ModuleSpec]":
        if fullname != "torch" or path is not None:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            _run_afterwards(spec.loader)
        return spec


def _run_afterwards(loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _measure()  # first: the emulation looks for the functions of torch.Tensor that it finds now
        if os.environ.get("SMDP_CUDA_ON_CPU") == "1":
            importlib.import_module("smdp_engine.cuda_on_cpu").install()  # an error is the script's: it has no CUDA
        _register()

    loader.exec_module = exec_module


def _register() -> None:
    try:
        importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")
    except Exception as error:  # the script may not use the backend
        sys.stderr.write(f"smdp: the torch backend smddp is not available: {type(error).__name__}: {error}\n")


def _measure() -> None:
    if "RANK" not in os.environ or "SMDP_EVENT_PIPE" not in os.environ:
        return
    try:
        importlib.import_module("smdp_engine.timing.torch_hooks").install()
    except Exception as error:  # the script runs without the measurement
        if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("smdp_engine"):
            return  # the engine is older than this entrypoint, or absent
        sys.stderr.write(f"smdp: this rank is not measured: {type(error).__name__}: {error}\n")


def _run_the_hidden_one() -> None:
    # No pathlib: every Python process of the job imports this module.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    others = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _AfterTorch())
_run_the_hidden_one()
