"""The first generation's wrapper, deprecated: use torch's own with the backend ``smddp``."""

from .distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
