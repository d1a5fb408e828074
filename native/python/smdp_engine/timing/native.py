"""The native module with the clock and the counts of fetches, where the engine's wheel has it: see native/clock."""

import importlib
from types import ModuleType
from typing import Optional


def _module() -> Optional[ModuleType]:
    try:
        return importlib.import_module("smdp_engine._clock")
    except ImportError:  # it was not built, or does not fit this Python
        return None


#: None: the classes in Python count the same, and take longer.
MODULE = _module()
