"""The environment variables of distributed jobs, of their hosts and of each worker."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping

from smdp_entrypoint.contract import cuda_on_cpu
from smdp_entrypoint.contract.devices import Devices, usable_cores
from smdp_entrypoint.contract.fabric import fabric_variables, has_plugin
from smdp_entrypoint.contract.platform_files import NO_INSTANCE_TYPE, Contract
from smdp_entrypoint.contract.rank_layout import MIRRORED_FLAG, Layout, training_hosts

# The port of the server of AWS's library (toolkit's smdataparallel.py).
SMDATAPARALLEL_SERVER_PORT = 7592
# The port of the workers of MultiWorkerMirroredStrategy (AWS's TensorFlow toolkit, training.py).
_MIRRORED_PORT = 8890
# Contains a `sitecustomize` that registers the backend.
_WORKER_SITE = str(Path(__file__).parents[1] / "worker_site")
# Linux does not start a process with a longer variable (MAX_ARG_STRLEN).
_LONGEST_VARIABLE = 128 * 1024 - 1
# Under these flags AWS's containers start the script with Open MPI, and scripts read its variables.
_MPI_FLAGS = (
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_pytorch_ddp_enabled",
    "sagemaker_mpi_enabled",
)
# Of jobs whose script uses NCCL, or Gloo on hosts without GPUs.
_TORCH_FLAG = "sagemaker_torch_distributed_enabled"
_NO_PLUGIN = (
    "warning: this image has no NCCL plugin for EFA (libnccl-net.so of aws-ofi-nccl), so NCCL exchanges between the "
    "hosts over TCP, which is many times slower: install the plugin, or Amazon's EFA installer 1.38.1 or later, in the "
    "image"
)


@dataclass(frozen=True)
class Master:
    """Where rank 0 listens: an address, not a name, so that workers need no name service."""

    host: str
    address: str
    port: int

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def host_variables(contract: Contract, layout: Layout, master: Master) -> dict[str, str]:
    """The variables that all workers of this host share."""
    own = {
        "SMDP_HOST_ID": layout.current_host,
        "SMDP_CHECKPOINT_DIR": str(contract.checkpoints),
        "SAGEMAKER_INSTANCE_TYPE": instance_type(contract),
    }
    if not layout.trains:
        return own
    variables = {
        **own,
        "WORLD_SIZE": str(layout.world_size),
        "LOCAL_WORLD_SIZE": str(layout.workers_per_host),
        "GROUP_RANK": str(layout.host_index),
        "MASTER_ADDR": master.address,
        "MASTER_PORT": str(master.port),
    }
    if contract.hyperparameters.flag(MIRRORED_FLAG) and layout.hosts == tuple(training_hosts(contract)):
        variables["TF_CONFIG"] = json.dumps(_mirrored_cluster(layout))
    if contract.hyperparameters.flag(_TORCH_FLAG):
        # AWS's images start these jobs with torchrun, whose default this is. Lightning then compares its own numbers
        # of devices and nodes with WORLD_SIZE. torch reads only whether the variable is set.
        variables["TORCHELASTIC_RUN_ID"] = "none"
    if len(layout.hosts) == 1:
        return {**variables, "SMDATAPARALLEL_USE_SINGLENODE": "1"}
    return {
        **variables,
        "SMDATAPARALLEL_USE_HOMOGENEOUS": "1",
        "SMDATAPARALLEL_SERVER_ADDR": master.host,
        "SMDATAPARALLEL_SERVER_PORT": str(SMDATAPARALLEL_SERVER_PORT),
    }


def _mirrored_cluster(layout: Layout) -> dict[str, Any]:
    """TF_CONFIG of MultiWorkerMirroredStrategy, as AWS's TensorFlow toolkit 20.4 writes it."""
    return {
        "cluster": {"worker": [f"{host}:{_MIRRORED_PORT}" for host in layout.hosts]},
        "environment": "cloud",
        "task": {"index": layout.host_index, "type": "worker"},
    }


def instance_type(contract: Contract) -> str:
    """This host's instance type. The hyperparameter names the requested type, which differs where the job lists
    fallback types; it is used only if the platform's file names no type."""
    if contract.resources.instance_type != NO_INSTANCE_TYPE:
        return contract.resources.instance_type
    return str(contract.hyperparameters.framework.get("sagemaker_instance_type") or NO_INSTANCE_TYPE)


def default_variables(
    contract: Contract, layout: Layout, devices: Devices, environ: Mapping[str, str], say: Callable[[str], None]
) -> dict[str, str]:
    """Defaults, which the job's own environment ``environ`` overrides."""
    defaults = {"PYTHONUNBUFFERED": "1"}
    if devices.efa:
        fabric = fabric_variables(environ, instance_type=instance_type(contract))
        defaults.update(fabric)
        settings = ", ".join(f"{name}={value}" for name, value in fabric.items())
        say(f"this host has an Elastic Fabric Adapter: {settings}")
        if len(layout.hosts) > 1 and contract.hyperparameters.flag(_TORCH_FLAG) and not has_plugin(environ):
            say(_NO_PLUGIN)
    if layout.workers_per_host > 1:
        defaults["OMP_NUM_THREADS"] = str(max(1, usable_cores() // layout.workers_per_host))
    interface = contract.resources.interface
    if interface and interface in {name for _, name in socket.if_nameindex()}:
        defaults.update(NCCL_SOCKET_IFNAME=interface, GLOO_SOCKET_IFNAME=interface)
    elif interface:
        say(f"this host has no network interface {interface!r}: NCCL and Gloo select one")
    return defaults


def worker_variables(contract: Contract, layout: Layout, local_rank: int) -> dict[str, str]:
    if not layout.trains:
        return {}
    rank = layout.ranks[local_rank]
    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "SMDATAPARALLEL_LOCAL_RANK": str(local_rank),
    }
    if any(contract.hyperparameters.flag(name) for name in _MPI_FLAGS):
        variables.update(
            OMPI_COMM_WORLD_RANK=str(rank),
            OMPI_COMM_WORLD_SIZE=str(layout.world_size),
            OMPI_COMM_WORLD_LOCAL_RANK=str(local_rank),
            OMPI_COMM_WORLD_LOCAL_SIZE=str(layout.workers_per_host),
        )
    return variables


def with_code_on_path(environ: Mapping[str, str], code: Any) -> dict[str, str]:
    """``environ`` with a PYTHONPATH that contains the code folder, as under the AWS toolkit, and, where this project's
    engine provides `smddp`, the folder whose `sitecustomize` registers the backend without an import in the script."""
    site = [_WORKER_SITE] if _serves_smddp(environ) or cuda_on_cpu.is_requested(environ) else []
    path = [str(code), *site, *_engine_paths(environ), *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**environ, "PYTHONPATH": os.pathsep.join(path)}


def _engine_paths(environ: Mapping[str, str]) -> list[str]:
    """Where `import smdistributed` finds the engine. A job with `engine: native` finds it before AWS's own library,
    which the same image may contain; any other job finds it last, by the engine's own .pth file."""
    folder = _engine_folder()
    return [str(folder / "dropin")] if folder and environ.get("SMDP_ENGINE") == "native" else []


def _serves_smddp(environ: Mapping[str, str]) -> bool:
    """Whether `import smdistributed.dataparallel` finds the engine, and not AWS's own library."""
    folder = _engine_folder()
    if folder is None:
        return False
    if environ.get("SMDP_ENGINE") == "native":
        return True
    spec = importlib.util.find_spec("smdistributed")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec is not None else []
    first = next((place for place in places if (place / "dataparallel").is_dir()), None)
    return first is not None and folder in first.parents


def has_engine() -> bool:
    """Whether smdp-engine is installed for the workers."""
    return _engine_folder() is not None


def _engine_folder() -> Path | None:
    spec = importlib.util.find_spec("smdp_engine")
    folders = spec.submodule_search_locations if spec is not None else None
    return Path(folders[0]) if folders else None


def valid_variables(variables: Mapping[str, str], say: Callable[[str], None]) -> dict[str, str]:
    """`variables` without those with which the system cannot start a process; a log line names each of these."""
    valid = {}
    for name, value in variables.items():
        reason = _rejection(name, value)
        if reason:
            say(f"omitting the variable {name[:80]!r} from the workers' environment: {reason}")
        else:
            valid[name] = value
    return valid


def _rejection(name: str, value: str) -> str | None:
    if not name or "=" in name:
        return "a variable's name cannot contain '='"
    try:
        size = len(os.fsencode(f"{name}={value}"))
    except UnicodeEncodeError:
        return "it contains half of a character (a lone surrogate)"
    if "\0" in name + value:
        return "it contains a NUL character"
    return f"it is longer than {_LONGEST_VARIABLE} bytes" if size > _LONGEST_VARIABLE else None
