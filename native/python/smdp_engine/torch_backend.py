"""Registers the engine with torch.distributed as the backend ``smddp``.

Scripts import ``smdistributed.dataparallel.torch.torch_smddp``, which calls register(); the compiled
adapter is ``smdp_engine._torch``, built when the package was installed, against the torch that was there.
"""

import atexit
import importlib
import inspect
import os
import sys
from pathlib import Path
from typing import Any, Dict, List

from . import _by_name
from ._library import build

BACKEND = "smddp"


def register() -> None:
    """Make ``init_process_group(backend="smddp")`` use this engine. Calling it again changes nothing.

    Raises:
        ImportError: the adapter was not built, or was built for another torch.
    """
    dist = _distributed()
    adapter()
    if BACKEND in dist.Backend.backend_list:
        return
    register_backend = dist.Backend.register_backend
    # torch 2.0 has no such argument: there every backend is for all devices.
    takes_devices = "devices" in inspect.signature(register_backend).parameters
    devices = {"devices": ["cpu", "cuda"]} if takes_devices else {}
    groups = _Groups()
    register_backend(BACKEND, groups.create, extended_api=True, **devices)
    _by_name.let_in_monitored_barrier(dist, BACKEND)
    _by_name.check_over_own_groups(dist, BACKEND, groups.create_beside)
    atexit.register(_leave)
    if int(os.environ.get("RANK", "0")) == 0:
        sys.stderr.write(f"smdp: backend smddp is smdp-engine {build()} ({Path(__file__).parent})\n")


def _leave() -> None:
    """Say goodbye for a script that ends well without destroy_process_group(), lest it look dead.

    One that ends by an exception does not: it cuts its connections, before anything else of the ending
    interpreter could say goodbye for it, and the others hear at once that it was lost.
    Either way no thread of the backend needs Python's lock from here on.
    """
    dist = _distributed()
    compiled = adapter()
    if hasattr(sys, "last_type"):
        compiled.abandon()
    elif dist.is_initialized():
        dist.destroy_process_group()
    compiled.retire()


def _distributed() -> Any:
    return importlib.import_module("torch.distributed")


def adapter() -> Any:
    """The compiled half of the backend.

    Raises:
        ImportError: it was not built, or was built for another torch.
    """
    torch: Any = importlib.import_module("torch")
    try:
        compiled: Any = importlib.import_module("smdp_engine._torch")
    except ImportError as error:
        raise ImportError(
            f"smdp-engine has no backend for torch {torch.__version__} on Python {sys.version.split()[0]} "
            f"({error}). It is built against the installed torch: install smdp-engine again here."
        ) from error
    if compiled.built_for != torch.__version__:
        raise ImportError(
            f"smdp-engine's backend was built for torch {compiled.built_for}, this is torch "
            f"{torch.__version__}: install smdp-engine again here."
        )
    return compiled


class _Groups:
    """Makes the backends of process groups. Remembers who is in each, which torch tells but once."""

    def __init__(self) -> None:
        self._members: Dict[str, List[int]] = {}

    def create(self, options: Any, _backend_options: Any) -> Any:
        self._members[options.group_id] = list(options.global_ranks_in_group)
        return adapter().create(
            store=options.store,
            rank=options.group_rank,
            size=options.group_size,
            global_ranks=self._members[options.group_id],
            name=options.group_id,
            timeout=options.timeout,
            is_default=not _distributed().is_initialized(),
        )

    def create_beside(self, *, store: Any, rank: int, size: int, watched: str, timeout: Any) -> Any:
        """A second group of the members of the group ``watched``."""
        return adapter().create(
            store=store,
            rank=rank,
            size=size,
            global_ranks=self._members[watched],
            name=f"{watched}:checks",
            timeout=timeout,
            is_default=False,
        )
