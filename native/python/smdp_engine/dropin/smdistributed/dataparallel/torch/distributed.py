"""The first generation's functions, deprecated: use torch.distributed with the backend ``smddp``."""

from smdp_engine.first_generation.distributed import (
    ReduceOp,
    __getattr__,
    all_gather,
    all_reduce,
    all_to_all_single,
    barrier,
    broadcast,
    get_local_rank,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_initialized,
)

__all__ = [
    "ReduceOp",
    "__getattr__",
    "all_gather",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "get_local_rank",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_initialized",
]
