"""Instance types: their hardware, and the data-parallel libraries that support them."""

from __future__ import annotations

from typing import NamedTuple

from smdp_launch.catalog.frameworks import parts
from smdp_launch.catalog.tables import table


class Instance(NamedTuple):
    """One GPU instance type.

    Args:
        gpu_memory_gb: memory of each GPU.
        compute_capability: of the GPU, such as "8.0".
        network_gbit: Gbit/s of all interfaces together.
        fabric: the connection between the GPUs of one instance.
        local_nvme_gb: 0 if there is none; None if it is not known.
        cuda_min: the first CUDA version that supports the GPU.
        from_memory: the fields whose values do not come from a document; no rule may refuse a job because of them.
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
    fabric: str
    local_nvme_gb: int | None
    cuda_min: str
    architecture: str = "x86_64"
    from_memory: frozenset[str] = frozenset()


def instance(name: str) -> Instance | None:
    row = table("instances")["instances"].get(name)
    if row is None:
        return None
    return Instance(name, **row | {"from_memory": frozenset(row["from_memory"])})


def instances() -> list[Instance]:
    """Every type with details, in the table's order: families together, older ones first."""
    return [one for name in table("instances")["instances"] if (one := instance(name)) is not None]


def supported_instances(policy: str, engine: str) -> list[str]:
    """The types that a job can use.

    ``strict`` has the types of the library's documentation. ``extended`` adds those that AWS supports later and, for
    the native engine, every GPU instance in the table.
    """
    smddp = table("instances")["smddp"]
    if policy == "strict":
        return list(smddp["strict"])
    return list(table("instances")["instances"]) if engine == "native" else [*smddp["strict"], *smddp["extended"]]


def suggested_instances(policy: str, engine: str) -> list[str]:
    """The same types, in the order in which messages suggest them."""
    allowed = supported_instances(policy, engine)
    return sorted(allowed, key=table("instances")["suggested"]["order"].index)


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
