"""Registers the engine with torch.distributed as the backend ``smddp``.

Scripts import ``smdistributed.dataparallel.torch.torch_smddp``, which calls register(); the compiled adapter is
``smdp_engine._torch``, built when the package was installed, against the torch that was there.
"""

import atexit
import os
import sys
from typing import Any

BACKEND = "smddp"


def register() -> None:
    """Make ``init_process_group(backend="smddp")`` use this engine. Calling it again changes nothing.

    Raises:
        ImportError: the adapter was not built, or was built for another torch.
    """
    import torch.distributed as dist

    _adapter()
    if BACKEND in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])
    atexit.register(_leave)
    if int(os.environ.get("RANK", "0")) == 0:
        from . import build

        sys.stderr.write(f"smdp: backend smddp is smdp-engine {build()} ({os.path.dirname(__file__)})\n")


def _leave() -> None:
    """A script that ends without destroy_process_group() says goodbye all the same: the others need not think it died."""
    import torch.distributed as dist

    if dist.is_initialized() and sys.exc_info()[0] is None:
        dist.destroy_process_group()


def _adapter() -> Any:
    import torch

    try:
        from . import _torch
    except ImportError as error:
        raise ImportError(
            f"smdp-engine has no backend for torch {torch.__version__} on Python {sys.version.split()[0]} ({error}). "
            "It is built against the installed torch: install smdp-engine again in this environment."
        ) from error
    if _torch.built_for != torch.__version__:
        raise ImportError(
            f"smdp-engine's backend was built for torch {_torch.built_for}, this is torch {torch.__version__}: "
            "install smdp-engine again in this environment."
        )
    return _torch


def _create(options: Any, _backend_options: Any) -> Any:
    return _adapter().create(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        global_ranks=list(options.global_ranks_in_group),
        name=options.group_id,
        timeout=options.timeout,
    )
