"""Registers the engine with torch.distributed as the backend ``smddp``.

Scripts import ``smdp_engine.torch`` or ``smdistributed.dataparallel.torch.torch_smddp``, which call register(). The
compiled adapter is the file of this package that fits the installed torch, or one that is built for it (adapters).
"""

import atexit
import functools
import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any, Dict, List

from . import _local_reducer, _torch_adapter, _torch_patches, adapters
from ._library import build, library
from .launchers import is_rank_0

BACKEND = "smddp"


def register() -> None:
    """Make ``init_process_group(backend="smddp")`` use this engine. A second call has no effect.

    Raises:
        ImportError: no adapter fits the installed torch, and none can be built.
    """
    dist = _distributed()
    adapter()
    if BACKEND in dist.Backend.backend_list:
        return
    register_backend = dist.Backend.register_backend
    # In torch 2.0 without this argument every backend is for all devices.
    takes_devices = "devices" in inspect.signature(register_backend).parameters
    devices = {"devices": ["cpu", "cuda"]} if takes_devices else {}
    groups = _Groups()
    register_backend(BACKEND, groups.create, extended_api=True, **devices)
    _torch_patches.support_monitored_barrier(dist, BACKEND)
    _torch_patches.use_own_groups_for_checks(dist, BACKEND, groups.create_for_checks)
    atexit.register(_leave, groups)


def _leave(groups: "_Groups") -> None:
    """Close the connections at the interpreter's exit.

    A script that exits successfully without destroy_process_group() sends its final messages, so that other ranks do
    not take it for lost. A script that exits with an exception closes its connections without them, so that the other
    ranks learn of the loss at once. From here on no thread of the backend needs Python's lock.

    A forked child has the groups of its parent but not their threads: torch's store would wait for its own for ever.
    """
    if groups.process != os.getpid():
        return
    dist = _distributed()
    compiled = adapter()
    if hasattr(sys, "last_type"):
        compiled.abandon()
    elif dist.is_initialized():
        compiled.depart()
        dist.destroy_process_group()
    compiled.retire()


def _distributed() -> Any:
    return importlib.import_module("torch.distributed")


@functools.lru_cache(maxsize=None)
def adapter() -> Any:
    """The compiled part of the backend.

    Raises:
        ImportError: torch is not installed, or no adapter fits it and none can be built (adapters.AdapterMissing).
    """
    importlib.import_module("torch.distributed")
    library()  # the adapter needs it
    return adapters.load("torch", _torch_adapter.open_adapter)


class _Groups:
    """Creates the backends of process groups. It stores each group's ranks, which torch passes only once.

    Attributes:
        process: the process that has created the last group; before the first one, the one that has registered the
            backend.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._ranks: Dict[str, List[int]] = {}

    def create(self, options: Any, _backend_options: Any) -> Any:
        # The entrypoint registers the backend in every job: only a job that uses it names it.
        if not self._ranks and is_rank_0():
            sys.stderr.write(f"smdp: backend smddp is smdp-engine {build()} ({Path(__file__).parent})\n")
        self.process = os.getpid()
        ranks = self._ranks[options.group_id] = list(options.global_ranks_in_group)
        backend = adapter().create(
            store=options.store,
            rank=options.group_rank,
            size=options.group_size,
            global_ranks=ranks,
            name=options.group_id,
            timeout=options.timeout,
            opens_engine=not self._default_has_engine(),
        )
        _local_reducer.attach(
            adapter(),
            backend,
            store=options.store,
            ranks=ranks or range(options.group_size),
            rank=options.group_rank,
            name=options.group_id,
            limit=options.timeout,
        )
        return backend

    def create_for_checks(self, *, store: Any, rank: int, size: int, watched: str, timeout: Any) -> Any:
        """A second group with the ranks of the group ``watched``."""
        return adapter().create(
            store=store,
            rank=rank,
            size=size,
            global_ranks=self._ranks[watched],
            name=f"{watched}:checks",
            timeout=timeout,
            opens_engine=False,
        )

    @staticmethod
    def _default_has_engine() -> bool:
        """Whether the default process group uses this backend: then all groups use its engine, which has all ranks."""
        dist = _distributed()
        # One name, or one for each device as in cpu:gloo,cuda:smddp.
        return dist.is_initialized() and any(name.split(":")[-1] == BACKEND for name in dist.get_backend().split(","))
