"""A backend for CPUs in place of NCCL, under NCCL's name: smdp-engine's, or Gloo where torch has no smddp."""

import importlib
import inspect
import os
import sys
import weakref
from typing import Any, Callable, Dict, Tuple

from .not_emulated import PAGE

torch: Any = importlib.import_module("torch")

_ENGINE, _GLOO, _NCCL = "smddp", "gloo", "nccl"


#: The groups for which the script asked for NCCL.
_GROUPS: Any = weakref.WeakSet()


class _State:
    reported = False


def apply() -> None:
    """Report NCCL as available, and the groups for which the script asked for it as its groups."""
    dist = torch.distributed
    for module in (dist, dist.distributed_c10d):
        module.is_nccl_available = lambda: True
    # torch's own modules ask distributed_c10d, which still names the backend beneath.
    dist.get_backend = _named(dist.get_backend)


def start(original: Callable[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
    """Call ``init_process_group`` or ``new_group`` with another backend if ``backend`` names NCCL."""
    given = inspect.signature(original).bind_partial(*args, **kwargs).arguments
    backend = given.get("backend")
    if not isinstance(backend, str) or _NCCL not in backend.lower():
        return original(*args, **kwargs)
    given.update(given.pop("kwargs", {}))
    given["backend"] = beneath(backend)
    given.pop("pg_options", None)  # those of NCCL
    made = original(**given)
    group = made if made is not None else torch.distributed.group.WORLD
    if isinstance(group, torch.distributed.ProcessGroup):
        _GROUPS.add(group)
    _report(given["backend"])
    return made


def beneath(backend: str) -> str:
    """The backend in place of one that names NCCL, such as "cpu:gloo,cuda:nccl"."""
    known = getattr(torch.distributed.Backend, "backend_list", ())
    other = _ENGINE if _ENGINE in known else _GLOO
    named = [one.strip().lower() for one in backend.split(",")]
    on_cpu = next((one[4:] for one in named if one.startswith("cpu:") and _NCCL not in one), None)
    # One backend has to serve both kinds of tensors, because all of them are in the memory of the host.
    return other if on_cpu in (None, _GLOO) else str(on_cpu)


def _named(original: Callable[..., str]) -> Callable[..., str]:
    def get_backend(group: Any = None) -> str:
        name = original(group)
        named = group if group is not None else torch.distributed.group.WORLD
        return _NCCL if isinstance(named, torch.distributed.ProcessGroup) and named in _GROUPS else name

    return get_backend


def _report(backend: str) -> None:
    if not _State.reported and os.environ.get("RANK", "0") == "0":
        title = "smdp-engine's smddp" if backend == _ENGINE else backend
        sys.stderr.write(f"smdp: the backend nccl is {title} on CPUs ({PAGE})\n")
    _State.reported = True
