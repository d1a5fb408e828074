"""The engine for torch.distributed: importing this module registers the backend ``smddp``.

Then ``torch.distributed.init_process_group("smddp")`` works below torchrun, as with any backend. ``init()`` does the
same, and works below mpirun and srun too, which do not set the variables that PyTorch reads.
"""

import importlib
import os
import socket
import sys
from datetime import timedelta
from typing import Any, Optional

from .launchers import Launch, LaunchError, detect
from .torch_backend import BACKEND, register

__all__ = ["BACKEND", "Launch", "LaunchError", "init", "register"]

try:
    register()
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError("smdp_engine.torch needs PyTorch, which is not installed here: pip install torch") from None

_JOB_KEY = "smdp/job"


def init(*, launcher: Optional[str] = None, timeout: Optional[timedelta] = None, **options: Any) -> Launch:
    """Create the default process group with this backend, below torchrun, mpirun, mpiexec or srun.

    It sets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which libraries read, and
    returns the same values. Below mpirun and srun rank 0 prints which address and port it uses, and where they come
    from.

    Args:
        launcher: "torchrun", "openmpi", "mpich" (also Intel MPI), "slurm", or "env" for the variables above; by default
            the innermost launcher that started this process.
        timeout: the default deadline of an operation, as for init_process_group().
        options: further arguments of init_process_group().

    Raises:
        TypeError: ``options`` has what init() finds itself, such as ``store`` or ``rank``.
        LaunchError: no launcher started this process, a variable is missing, malformed or contradicts another one, or
            rank 0's store cannot be reached. Nothing was changed, or only the variables above.
    """
    own = sorted(options.keys() & {"backend", "init_method", "rank", "store", "world_size"})
    if own:
        raise TypeError(
            f"init() finds {', '.join(own)} itself: leave it out, or call init_process_group('{BACKEND}', ...)"
        )
    launch = detect(launcher=launcher)
    dist: Any = importlib.import_module("torch.distributed")
    if dist.is_initialized():
        raise LaunchError("the default process group exists: call init() once, or destroy_process_group() first")
    if timeout is not None:
        options["timeout"] = timeout
    if launch.launcher not in ("torchrun", "env"):
        options.update(
            store=_store(dist, launch, timeout or dist.distributed_c10d.default_pg_timeout),
            rank=launch.rank,
            world_size=launch.world_size,
        )
        if launch.rank == 0:
            sys.stderr.write(f"smdp: {launch}\n")
    os.environ.update(launch.variables())
    dist.init_process_group(BACKEND, **options)
    return launch


def _store(dist: Any, launch: Launch, timeout: timedelta) -> Any:
    """The store that rank 0 serves.

    Another job's store may have the port already. init_process_group() would then change the counters of that job, so
    every rank first reads whose store it is.
    """
    place = f"{launch.master_addr}:{launch.master_port}"
    whence = f"MASTER_ADDR {launch.addr_origin}, MASTER_PORT {launch.port_origin}"
    _check_name(launch)
    limit = _rendezvous_timeout(timeout)
    try:
        store = dist.TCPStore(
            launch.master_addr,
            launch.master_port,
            launch.world_size,
            launch.rank == 0,
            timeout=limit,
            wait_for_workers=False,
            multi_tenant=True,
        )
        job = f"{launch.job}, {launch.world_size} ranks"
        if launch.rank == 0:
            store.set(_JOB_KEY, job)
        found = store.get(_JOB_KEY).decode(errors="replace")
    except RuntimeError as error:
        raise LaunchError(_unreachable(launch, place, whence, limit, error)) from None
    if found != job:
        raise LaunchError(
            f"the store at {place} ({whence}) belongs to another job ({found[:100]!r}, this is {job!r}): "
            "set MASTER_PORT to another port"
        )
    store.set_timeout(timeout)
    return dist.PrefixStore("default_pg", store)


def _check_name(launch: Launch) -> None:
    try:
        socket.getaddrinfo(launch.master_addr, launch.master_port)
    except (OSError, UnicodeError) as error:
        raise LaunchError(
            f"MASTER_ADDR={launch.master_addr} ({launch.addr_origin}) has no address on this host ({error}): "
            "set MASTER_ADDR to the address of rank 0's host"
        ) from None


def _rendezvous_timeout(default: timedelta) -> timedelta:
    text = os.environ.get("SMDP_RENDEZVOUS_TIMEOUT_S")
    if text is None:
        return default
    try:
        return timedelta(seconds=max(float(text), 0.01))
    except (ValueError, OverflowError):
        raise LaunchError(
            f"SMDP_RENDEZVOUS_TIMEOUT_S={text!r} is not a number of seconds: unset it or correct it"
        ) from None


def _unreachable(launch: Launch, place: str, whence: str, limit: timedelta, error: RuntimeError) -> str:
    reason = str(error).partition("\n")[0]
    if launch.rank == 0 and "already in use" in str(error).lower():
        return (
            f"MASTER_PORT={launch.master_port} ({launch.port_origin}) is in use on this host, where rank 0 runs: "
            "set MASTER_PORT to a free port on all ranks"
        )
    return (
        f"rank {launch.rank} did not reach rank 0's store at {place} ({whence}) in {limit.total_seconds():g} s: "
        "check that rank 0 runs on that host and has not failed, and that the hosts can reach each other at this port; "
        f"otherwise set MASTER_ADDR and MASTER_PORT ({reason})"
    )
