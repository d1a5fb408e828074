"""The longer import path of the first generation's wrapper."""

from smdp_engine.first_generation.parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
