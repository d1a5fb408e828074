"""The functions of ``smdistributed.dataparallel.torch.distributed``, on torch.distributed with the backend ``smddp``.

``group`` and the values of ``ReduceOp`` are torch's own, so both modules accept each other's objects.
"""

import importlib
import os
from typing import Any, List, Optional

from .. import torch_backend
from .deprecation import PACKAGE, deprecated

dist: Any = importlib.import_module("torch.distributed")

group = dist.group

_MODULE = f"{PACKAGE}.distributed"
# The variables that torch's rendezvous reads; every launcher sets them.
_LAUNCH = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_LOCAL_RANK = ("LOCAL_RANK", "SMDATAPARALLEL_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
_ELSEWHERE = {
    "get_local_size": 'os.environ["LOCAL_WORLD_SIZE"]',
    "DistributedDataParallel": f"{PACKAGE}.parallel.DistributedDataParallel",
}


class ReduceOp:
    """The operations of ``all_reduce``; AVERAGE is torch's AVG."""

    AVERAGE = dist.ReduceOp.AVG
    SUM = dist.ReduceOp.SUM
    MIN = dist.ReduceOp.MIN
    MAX = dist.ReduceOp.MAX


def require_world(group: Any, entry: str) -> None:
    """Raises ValueError unless ``group`` is None or the group of all ranks."""
    if group is not None and group is not dist.group.WORLD:
        raise ValueError(
            f"{PACKAGE}.{entry}: group must be None or group.WORLD; "
            f"for other groups use torch.distributed with the backend smddp"
        )


@deprecated("distributed.is_available", '"RANK" in os.environ')
def is_available() -> bool:
    """Whether a launcher started this process as a rank of a job. In a script that runs alone it is False, no error."""
    return bool(dist.is_available()) and all(name in os.environ for name in _LAUNCH)


@deprecated("distributed.init_process_group", 'torch.distributed.init_process_group("smddp")')
def init_process_group(*args: Any, **kwargs: Any) -> None:
    """Join the job. Only the argument ``timeout`` (a timedelta) has an effect; ``group`` must be WORLD.

    Raises:
        RuntimeError: no launcher started the process as a rank of a job.
        ImportError: the backend was not built, or was built for another torch.
    """
    require_world(kwargs.get("group"), "distributed.init_process_group")
    missing = [name for name in _LAUNCH if name not in os.environ]
    if missing:
        raise RuntimeError(
            f"{_MODULE}.init_process_group: {', '.join(missing)} not set, so no launcher started this process. "
            "Start it with smdp-launch or torchrun; in a script that also runs alone, check is_available() first."
        )
    torch_backend.register()
    timeout = {} if kwargs.get("timeout") is None else {"timeout": kwargs["timeout"]}
    dist.init_process_group(torch_backend.BACKEND, **timeout)


@deprecated("distributed.is_initialized", "torch.distributed.is_initialized")
def is_initialized() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


@deprecated("distributed.get_world_size", "torch.distributed.get_world_size")
def get_world_size(group: Any = None) -> int:
    """The number of ranks on all hosts."""
    require_world(group, "distributed.get_world_size")
    return int(dist.get_world_size())


@deprecated("distributed.get_rank", "torch.distributed.get_rank")
def get_rank(group: Any = None) -> int:
    """This process's rank among all, from 0."""
    require_world(group, "distributed.get_rank")
    return int(dist.get_rank())


@deprecated("distributed.get_local_rank", 'int(os.environ["LOCAL_RANK"])')
def get_local_rank() -> int:
    """This process's rank among those of its host, from 0.

    Raises:
        RuntimeError: no launcher started the process as a rank of a job.
    """
    rank = next((os.environ[name] for name in _LOCAL_RANK if name in os.environ), None)
    if rank is None:
        raise RuntimeError(f"{_MODULE}.get_local_rank: LOCAL_RANK is not set, so no launcher started this process")
    return int(rank)


@deprecated("distributed.all_reduce", "torch.distributed.all_reduce (AVERAGE is torch's ReduceOp.AVG)")
def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """Reduce in place, with the same bits on all ranks. ``op`` None is SUM. Returns a handle if ``async_op``."""
    require_world(group, "distributed.all_reduce")
    op = ReduceOp.SUM if op is None else op
    if op not in (ReduceOp.AVERAGE, ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX):
        raise ValueError(
            f"{_MODULE}.all_reduce: op must be ReduceOp.AVERAGE, SUM, MIN or MAX, found {op}; "
            "use torch.distributed.all_reduce for other operations"
        )
    return dist.all_reduce(tensor, op=op, async_op=async_op)


@deprecated("distributed.broadcast", "torch.distributed.broadcast")
def broadcast(tensor: Any, src: int = 0, group: Any = None, async_op: bool = False) -> Any:
    require_world(group, "distributed.broadcast")
    return dist.broadcast(tensor, src, async_op=async_op)


@deprecated("distributed.all_gather", "torch.distributed.all_gather")
def all_gather(tensor_list: List[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Any:
    require_world(group, "distributed.all_gather")
    return dist.all_gather(tensor_list, tensor, async_op=async_op)


@deprecated("distributed.all_to_all_single", "torch.distributed.all_to_all_single")
def all_to_all_single(
    output_t: Any,
    input_t: Any,
    output_split_sizes: Optional[List[int]] = None,
    input_split_sizes: Optional[List[int]] = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    require_world(group, "distributed.all_to_all_single")
    return dist.all_to_all_single(output_t, input_t, output_split_sizes, input_split_sizes, async_op=async_op)


@deprecated("distributed.barrier", "torch.distributed.barrier")
def barrier(group: Any = None, async_op: bool = False) -> Any:
    require_world(group, "distributed.barrier")
    return dist.barrier(async_op=async_op)


def __getattr__(name: str) -> Any:
    """Name the replacement of a function that this generation does not have."""
    instead = _ELSEWHERE.get(name)
    if instead is None and not name.startswith("_") and hasattr(dist, name):
        instead = f"torch.distributed.{name}, which works together with this module"
    if instead is None:
        raise AttributeError(f"module {_MODULE} has no attribute {name}")
    raise AttributeError(f"module {_MODULE} has no {name}: use {instead}")
