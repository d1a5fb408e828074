"""Instance types: their hardware, and the data-parallel libraries that support them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from smdp_launch.catalog.engines import TORCH_DISTRIBUTED
from smdp_launch.catalog.frameworks import parts
from smdp_launch.catalog.limits import known_instance_types
from smdp_launch.catalog.tables import table


class Instance(NamedTuple):
    """One GPU instance type.

    Args:
        gpu_memory_gb: memory of each GPU.
        compute_capability: of the GPU, such as "8.0".
        network_gbit: Gbit/s of all interfaces together; for small types the most that they reach.
        fabric: the connection between the GPUs of one instance; None for a single GPU, or if it is not documented.
        local_nvme_gb: 0 if there is none; None if it is not known.
        cuda_min: the first CUDA version that supports the GPU; None if it is not documented.
        cuda_end: the first CUDA version that supports the GPU no longer; None if there is none.
        gpudirect_rdma: network adapters read and write the memory of GPUs; None if it is not documented.
        from_memory: the fields whose values do not come from a document; no rule may refuse a job because of them.
        sources: the sources of fields that differ from those of the table's column, by field.
    """

    name: str
    gpus: int
    gpu: str
    gpu_memory_gb: int
    compute_capability: str
    vcpus: int
    memory_gib: int
    network_gbit: int
    efa_interfaces: int
    fabric: str | None
    local_nvme_gb: int | None
    cuda_min: str | None
    cuda_end: str | None = None
    architecture: str = "x86_64"
    gpudirect_rdma: bool | None = None
    from_memory: frozenset[str] = frozenset()
    sources: Mapping[str, str] = MappingProxyType({})

    def is_documented(self, *fields: str) -> bool:
        """Whether all ``fields`` have values from a document, so that a rule may refuse a job because of them."""
        return all(getattr(self, one) is not None and one not in self.from_memory for one in fields)

    @property
    def capability(self) -> tuple[int, ...]:
        """The compute capability as numbers that can be compared."""
        return parts(self.compute_capability)


class CellSource(NamedTuple):
    """Where the value of a cell is from, and the day on which it was read there."""

    source: str
    checked: str


def instance(name: str) -> Instance | None:
    row = table("instances")["instances"].get(name)
    if row is None:
        return None
    return Instance(name, **row | {"from_memory": frozenset(row["from_memory"])})


def instances() -> list[Instance]:
    """Every type with details, in the table's order: families together, older ones first."""
    return [one for name in table("instances")["instances"] if (one := instance(name)) is not None]


def source_of(one: Instance, field: str) -> CellSource | None:
    """The source of a field's value; None if it has none, or no value."""
    if not one.is_documented(field):
        return None
    loaded = table("instances")
    name = one.sources.get(field, loaded["cells"].get(field))
    return CellSource(**loaded["sources"][name]) if name is not None else None


#: Families with accelerators that are not GPUs, which PyTorch uses through another library.
_TRAINIUM = "ml.trn"
_WITHOUT_ACCELERATORS = ("ml.m", "ml.c", "ml.r", "ml.t3")


def has_no_accelerators(name: str) -> bool:
    """Whether ``name`` is a type that trains on its CPUs."""
    return name in known_instance_types() and name.startswith(_WITHOUT_ACCELERATORS)


def has_local_disks(name: str) -> bool:
    """Whether ``name`` is a type without accelerators that has NVMe disks: EC2's names of such families have a "d"
    after the generation, such as r5d."""
    return has_no_accelerators(name) and re.match(r"ml\.[a-z]+\d+[a-z]*d[a-z]*[.-]", name) is not None


def is_trainium(name: str) -> bool:
    return name in known_instance_types() and name.startswith(_TRAINIUM)


def supported_instances(policy: str, engine: str) -> list[str]:
    """The types that a job can use.

    ``strict`` has the types of the library's documentation. ``extended`` adds those that AWS supports later and, for
    the native engine, every GPU instance in the table. The policy has no meaning for torch.distributed: ``nccl`` runs
    on every GPU instance, and ``gloo`` on the types without accelerators too.
    """
    if engine in TORCH_DISTRIBUTED:
        gpus = list(table("instances")["instances"])
        return [*gpus, *sorted(filter(has_no_accelerators, known_instance_types()))] if engine == "gloo" else gpus
    smddp = table("instances")["smddp"]
    if policy == "strict":
        return list(smddp["strict"])
    return list(table("instances")["instances"]) if engine == "native" else [*smddp["strict"], *smddp["extended"]]


def suggested_instances(policy: str, engine: str) -> list[str]:
    """The same types, in the order in which messages suggest them.

    For ``gloo``: only those without GPUs, small ones first.
    """
    allowed = supported_instances(policy, engine)
    if engine == "gloo":
        return sorted(filter(has_no_accelerators, allowed), key=_size)
    return sorted(allowed, key=table("instances")["suggested"]["order"].index)


def _size(name: str) -> tuple[int, str]:
    """The size of a type without GPUs, such as 4 for xlarge and 8 for 2xlarge, and its name."""
    number = re.fullmatch(r"(\d*)xlarge", name.rpartition(".")[2])
    return (4 * int(number[1] or 1) if number is not None else 1), name


class LibraryVersions(NamedTuple):
    """The versions of AWS's library that support a type: from ``since`` up to, but not including, ``before``."""

    since: str | None = None
    before: str | None = None

    def include(self, version: str) -> bool:
        number = parts(version)
        return not (
            (self.since is not None and number < parts(self.since))
            or (self.before is not None and number >= parts(self.before))
        )


def library_versions(name: str) -> LibraryVersions:
    """The versions for a type that AWS's library supports in at least one version."""
    return LibraryVersions(**table("instances")["smddp_versions"].get(name, {}))


def replacement(name: str) -> str | None:
    """The correct type for one that AWS's documents mention and that never existed; None for all others."""
    correct: str | None = table("instances")["never_existed"].get(name)
    return correct
