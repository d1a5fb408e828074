"""The first generation's wrapper, deprecated: use DistributedDataParallel of torch with the backend ``smddp``."""

from .distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
