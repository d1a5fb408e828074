"""Which ranks run on which host.

Hosts are in the order of the platform's list, which is alphabetical (algo-1, algo-10, algo-2): host i has the ranks
from i * workers on. The number in a host's name has no influence on ranks.

Hosts of an instance group outside the distribution have no rank, nor have those of a job with several groups and no
distribution: as under AWS's toolkits, which start a plain process there, the script runs once, with the SM_* variables
and without those of a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from smdp_entrypoint.contract.devices import Devices
from smdp_entrypoint.contract.errors import ContractError
from smdp_entrypoint.contract.platform_files import Contract
from smdp_entrypoint.contract.settings import Settings, positive, short_repr

# Flags that request one worker per GPU explicitly ...
DATA_PARALLEL_FLAGS = (
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_torch_distributed_enabled",
    "sagemaker_pytorch_ddp_enabled",
    "sagemaker_mpi_enabled",
)
# ... the flag that requests TensorFlow's own strategy, whose single worker on a host uses all its GPUs ...
MIRRORED_FLAG = "sagemaker_multi_worker_mirrored_strategy_enabled"
# ... flags that this entrypoint does not support ...
_NOT_STARTED = {
    "sagemaker_parameter_server_enabled": "no parameter server, and TF_CONFIG is not set",
    "sagemaker_pytorch_xla_multi_worker_enabled": "no XLA multi-worker launcher",
}
# ... and everything that the AWS toolkit calls a distribution.
DISTRIBUTION_FLAGS = (*DATA_PARALLEL_FLAGS, *_NOT_STARTED, MIRRORED_FLAG)
_GROUPS = "sagemaker_distribution_instance_groups"
PROCESSES_PER_HOST = "sagemaker_mpi_num_of_processes_per_host"


@dataclass(frozen=True)
class Layout:
    """The hosts that train together, in rank order, and the number of workers on each. `trains` is False on a host
    outside the distribution, whose layout is that of the one process on it."""

    hosts: tuple[str, ...]
    current_host: str
    workers_per_host: int
    trains: bool = True

    @property
    def host_index(self) -> int:
        return self.hosts.index(self.current_host)

    @property
    def world_size(self) -> int:
        return len(self.hosts) * self.workers_per_host

    @property
    def ranks(self) -> list[int]:
        """The global ranks on the current host, by local rank."""
        first = self.host_index * self.workers_per_host
        return list(range(first, first + self.workers_per_host))


def plan_layout(contract: Contract, settings: Settings, devices: Devices, say: Callable[[str], None]) -> Layout:
    resources = contract.resources
    together = training_hosts(contract)
    if resources.current_host not in together:
        why = f"this host's group {resources.group!r} is not part of the distribution"
        if not together:
            why = f"the job has several instance groups and no distribution (a flag, and the groups in {_GROUPS})"
        say(f"{why}: the script runs as one process")
        return Layout((resources.current_host,), resources.current_host, 1, trains=False)
    for flag, absent in _NOT_STARTED.items():
        if contract.hyperparameters.flag(flag):
            say(f"{flag} is set: this entrypoint starts {absent}")
    workers, reason = _workers_per_host(contract, settings, devices)
    layout = Layout(tuple(together), resources.current_host, workers)
    say(f"{len(together)} host(s), {workers} worker(s) on each ({reason}), world size {layout.world_size}")
    return layout


def distribution_groups(contract: Contract) -> list[str]:
    """The instance groups over which the job is distributed; none if no distribution flag is on."""
    named = contract.hyperparameters.framework.get(_GROUPS)
    if named is not None:
        if not isinstance(named, list):
            raise ContractError(f"{_GROUPS} must be a list, found {short_repr(named)}.")
        existing = [group["instance_group_name"] for group in contract.resources.groups]
        if existing and not all(name in existing for name in named):
            raise ContractError(
                f"{_GROUPS} must name instance groups of the job, which are {short_repr(existing)}, found "
                f"{short_repr(named)}."
            )
        return named
    distributed = any(contract.hyperparameters.flag(name) for name in DISTRIBUTION_FLAGS)
    return [contract.resources.group] if distributed else []


def distribution_hosts(contract: Contract) -> list[str]:
    """The AWS toolkit's list: empty if nothing is distributed and the platform lists instance groups."""
    resources = contract.resources
    if not resources.groups:
        return list(resources.hosts)
    names = distribution_groups(contract)
    selected = [group for group in resources.groups if group["instance_group_name"] in names]
    return [host for group in selected for host in group["hosts"]]


def training_hosts(contract: Contract) -> list[str]:
    """The hosts that train together: those of the distribution, else all, or none if there are several groups."""
    found = distribution_hosts(contract)
    return found if found or len(contract.resources.groups) > 1 else list(contract.resources.hosts)


def _workers_per_host(contract: Contract, settings: Settings, devices: Devices) -> tuple[int, str]:
    requested: Any = contract.hyperparameters.framework.get(PROCESSES_PER_HOST)
    if contract.hyperparameters.flag(MIRRORED_FLAG):
        return 1, "MultiWorkerMirroredStrategy"
    if settings.workers_per_host is not None:
        return settings.workers_per_host, "SMDP_WORKERS_PER_HOST"
    if requested:
        return positive(requested, f"hyperparameter {PROCESSES_PER_HOST}"), PROCESSES_PER_HOST
    workers = devices.gpus or devices.neurons or 1
    reason = "one per GPU" if devices.gpus else "one per Neuron core" if devices.neurons else "no GPU found"
    if not any(contract.hyperparameters.flag(name) for name in DATA_PARALLEL_FLAGS):
        reason += "; the job sets no data parallel flag; for one worker set SMDP_WORKERS_PER_HOST=1 in its environment"
    return workers, reason
