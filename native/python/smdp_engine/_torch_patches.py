"""Makes functions of PyTorch that check for the names of its own backends accept the engine's groups too."""

import functools
from datetime import timedelta
from typing import Any, Callable


def support_monitored_barrier(dist: Any, backend: str) -> None:
    """Make ``dist.monitored_barrier``, which refuses every backend but gloo, accept ``backend``."""
    c10d = dist.distributed_c10d
    torchs = c10d.monitored_barrier

    @functools.wraps(torchs)
    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> Any:
        if c10d._rank_not_in_group(group) or dist.get_backend(group) != backend:
            return torchs(group, timeout, wait_all_ranks)
        limit = c10d.default_pg_timeout if timeout is None else timeout
        if isinstance(limit, float):
            limit = timedelta(seconds=limit)
        ours = c10d._get_default_group() if group is None else group
        return ours.monitored_barrier(limit, wait_all_ranks=wait_all_ranks)

    dist.monitored_barrier = c10d.monitored_barrier = monitored_barrier


def use_own_groups_for_checks(dist: Any, backend: str, create: Callable[..., Any]) -> None:
    """Use groups of the engine for the checks of its groups, so that these use the same network.

    With TORCH_DISTRIBUTED_DEBUG=DETAIL torch compares each call of all ranks over a second group, by default of Gloo.
    ``create`` takes the store, rank, size, the name of the checked group, and the timeout.
    """
    c10d = dist.distributed_c10d
    torchs = c10d._create_process_group_wrapper

    @functools.wraps(torchs)
    def wrapper(wrapped_pg: Any, store_prefix: str, store: Any, rank: int, world_size: int, **others: Any) -> Any:
        if wrapped_pg.name() != backend:
            return torchs(wrapped_pg, store_prefix, store, rank, world_size, **others)
        own_store = dist.PrefixStore(f"checks:{store_prefix}", store)
        limit = others.get("timeout", c10d.default_pg_timeout)
        checks = create(store=own_store, rank=rank, size=world_size, watched=store_prefix, timeout=limit)
        return c10d._ProcessGroupWrapper(wrapped_pg, checks)

    c10d._create_process_group_wrapper = wrapper
