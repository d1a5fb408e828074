"""The ranks of a script's process group; without ``torch.distributed`` there is one."""

import importlib
from typing import Any, Callable, List


def _torch() -> Any:
    return importlib.import_module("torch")


def is_distributed() -> bool:
    dist: Any = importlib.import_module("torch.distributed")
    return bool(dist.is_available() and dist.is_initialized())


def rank(group: Any) -> int:
    return int(_torch().distributed.get_rank(group)) if is_distributed() else 0


def world_size(group: Any) -> int:
    return int(_torch().distributed.get_world_size(group)) if is_distributed() else 1


def agree(value: int, operation: str, group: Any) -> int:
    """The smallest or largest (``operation`` MIN or MAX) of the ranks' values, by an all_reduce of one number."""
    return begin_to_agree(value, operation, group)()


def begin_to_agree(value: int, operation: str, group: Any) -> Callable[[], int]:
    """Start the all_reduce of `agree`. The result of the returned function, which waits for it, is the same."""
    if not is_distributed():
        return lambda: value
    torch: Any = _torch()
    on_cuda = torch.distributed.get_backend(group) == "nccl"
    number = torch.tensor([value], dtype=torch.int64, device="cuda" if on_cuda else "cpu")
    operator = getattr(torch.distributed.ReduceOp, operation)
    work = torch.distributed.all_reduce(number, op=operator, group=group, async_op=True)

    def agreed() -> int:
        if work is not None:  # None: this rank is not in the group
            work.wait()
        return int(number.item())

    return agreed


def gather(value: Any, group: Any) -> List[Any]:
    if not is_distributed():
        return [value]
    values: List[Any] = [None] * world_size(group)
    _torch().distributed.all_gather_object(values, value, group=group)
    return values


def default_store() -> Any:
    """The store with which the process group was created. It lives as long as this reference, also after the group."""
    return importlib.import_module("torch.distributed.distributed_c10d")._get_default_store()


def gather_to_first(value: Any, group: Any) -> List[Any]:
    """The values of all ranks on rank 0 of the group, an empty list on the others."""
    if not is_distributed():
        return [value]
    first = rank(group) == 0
    values: List[Any] = [None] * world_size(group) if first else []
    _torch().distributed.gather_object(value, values if first else None, dst=_first_rank(group), group=group)
    return values


def scatter_from_first(values: List[Any], group: Any) -> Any:
    """This rank's one of the values that rank 0 of the group has."""
    if not is_distributed():
        return values[0]
    own: List[Any] = [None]
    _torch().distributed.scatter_object_list(own, values or None, src=_first_rank(group), group=group)
    return own[0]


def _first_rank(group: Any) -> int:
    return int(_torch().distributed.get_global_rank(group, 0)) if group is not None else 0
