"""The compiled adapters between frameworks and the engine: lists them, finds the one that fits, and builds one.

No framework is imported for that.
"""

from .cache import folder as cache_folder
from .choice import AdapterMissing, Verdict, build, check, load
from .files import Adapter, shipped
from .frameworks import FRAMEWORKS, Installed, installed

__all__ = [
    "FRAMEWORKS",
    "Adapter",
    "AdapterMissing",
    "Installed",
    "Verdict",
    "build",
    "cache_folder",
    "check",
    "installed",
    "load",
    "shipped",
]
