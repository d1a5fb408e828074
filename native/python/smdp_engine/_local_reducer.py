"""The process groups in which the ranks of a host sum first (SMDP_LOCAL_REDUCER)."""

import importlib
import sys
from datetime import timedelta
from typing import Any, Optional, Sequence

SHARED_MEMORY = "shm"
# The kind of tensors that a backend takes here; None: any.
_DEVICES = {"nccl": "cuda", "gloo": "cpu", "smddp": None}


def attach(
    adapter: Any, backend: Any, *, store: Any, ranks: Sequence[int], rank: int, name: str, limit: timedelta
) -> None:
    """Make the backend of a process group sum within each host first, where the option says so and the group can.

    Args:
        ranks: the group's global ranks, of which ``rank`` is an index.
        limit: the deadline of a call.

    Raises:
        RuntimeError: this machine cannot have the process groups.
    """
    hosts, reducer = adapter.hosts(backend)
    if reducer == SHARED_MEMORY or len(set(hosts)) == len(hosts):
        return
    dist: Any = importlib.import_module("torch.distributed")
    if reducer == "nccl" and dist.is_initialized():  # the default process group exists
        # The host's first rank orders the steps of one process group (step_order.h). A rank of the host that is not in
        # the second one has no part in an order of both.
        if rank == 0:
            sys.stderr.write(
                f"smdp: process group {name} sums in shared memory and not with NCCL: only the default process group "
                "can use SMDP_LOCAL_REDUCER=nccl, because the calls of two groups on one GPU could block each other\n"
            )
        return
    mates = [mate for mate, host in enumerate(hosts) if host == hosts[rank]]
    members = [ranks[mate] for mate in mates]

    def group(purpose: str) -> Optional[Any]:
        if len(mates) == 1:
            return None
        place = _unused_keys(dist, store, purpose, members)
        local_rank = mates.index(rank)
        if reducer == "smddp":
            return adapter.create(
                store=place,
                rank=local_rank,
                size=len(mates),
                global_ranks=members,
                name=f"{name}:{purpose}",
                timeout=limit,
                opens_engine=False,
            )
        if reducer == "gloo":
            return dist.ProcessGroupGloo(place, local_rank, len(mates), limit)
        return _nccl(dist, place, local_rank, len(mates), limit)

    adapter.reduce_within_host(backend, reducer, group("scatter"), group("gather"), _DEVICES[reducer])


def _unused_keys(dist: Any, store: Any, purpose: str, members: Sequence[int]) -> Any:
    """The store with a prefix that no earlier group has used, the same on all ``members`` (global ranks).

    The store may outlive its groups, for example where a script destroys the default group and makes it again. NCCL and
    Gloo would find the addresses of ranks that have closed them.
    """
    place = dist.PrefixStore(f"smdp/{purpose}/{'-'.join(map(str, members))}", store)
    groups_before = (place.add("members", 1) - 1) // len(members)
    return dist.PrefixStore(str(groups_before), place)


def _nccl(dist: Any, store: Any, rank: int, size: int, limit: timedelta) -> Any:
    cuda = importlib.import_module("torch.cuda")
    refusal = nccl_refusal(
        is_built=dist.is_nccl_available(),
        devices=[cuda.get_device_name(number) for number in range(cuda.device_count())],
    )
    if refusal:
        raise RuntimeError(f"smddp: SMDP_LOCAL_REDUCER=nccl: {refusal}: set it to shm")
    options = dist.ProcessGroupNCCL.Options()
    options.is_high_priority_stream = True
    options._timeout = limit
    return dist.ProcessGroupNCCL(store, rank, size, options)


def nccl_refusal(*, is_built: bool, devices: Sequence[str]) -> Optional[str]:
    """Why this process cannot use NCCL with the other ranks of its host; ``devices``: the names of its GPUs."""
    if not is_built:
        return "this build of torch has no NCCL"
    if not devices:
        return "this process sees no GPU"
    if any(" MIG " in name for name in devices):
        return f"NCCL does not connect the parts of a divided GPU ({devices[0]})"
    return None
