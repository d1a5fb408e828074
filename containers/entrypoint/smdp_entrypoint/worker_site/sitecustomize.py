"""Read by every Python that a worker starts: makes torch's backend `smddp` known once torch has been imported, and has
CUDA imitated where the job asks for it.

AWS's containers want scripts to import `smdistributed.dataparallel.torch.torch_smddp` for that, and many forget it. It
is done here for every version of torch alike, after `import torch` has ended, so that the backend finds all of torch.
The `sitecustomize` that this one hides is run as if it were not here.
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
    """Finds `torch` as usual, and lets its loader register the backend when it is done."""

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
        if os.environ.get("SMDP_CUDA_ON_CPU") == "1":
            importlib.import_module("smdp_engine.cuda_on_cpu").install()  # an error is the script's: it has no CUDA
        _register()

    loader.exec_module = exec_module


def _register() -> None:
    try:
        importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")
    except Exception as error:  # a script that does not use the backend must not suffer from it
        sys.stderr.write(f"smdp: the torch backend smddp is not available: {type(error).__name__}: {error}\n")


def _run_the_hidden_one() -> None:
    # No pathlib here: every Python of the job pays for what this module imports.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    others = [folder for folder in sys.path if os.path.abspath(folder or os.curdir) != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _AfterTorch())
_run_the_hidden_one()
