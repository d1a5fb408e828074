"""The first generation's wrapper, deprecated: torch's own with the backend ``smddp`` is what to use."""

from .distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
