"""Calls a function after the complete import of a module that the script may import later, or never."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any, Callable, Dict, Optional

Patch = Callable[[ModuleType], None]


def after_import(patches: Dict[str, Patch]) -> None:
    """Call each module's function with the module, now or after its import. The functions must not raise."""
    for name in patches.keys() & sys.modules.keys():
        patches[name](sys.modules[name])
    later = {name: patch for name, patch in patches.items() if name not in sys.modules}
    if later:
        sys.meta_path.insert(0, _Finder(later))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules as usual, and has their loaders call the functions after the import."""

    def __init__(self, patches: Dict[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> "Optional[importlib.machinery.ModuleSpec]":
        patch = self._patches.pop(fullname, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            _run_afterwards(spec.loader, patch)
        return spec


def _run_afterwards(loader: Any, patch: Patch) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        patch(module)

    loader.exec_module = exec_module
