"""Instance types: what they hold, and which of them the data-parallel libraries serve."""

from __future__ import annotations

from typing import NamedTuple

from smdp_launch.catalog.frameworks import parts
from smdp_launch.catalog.tables import table


class Instance(NamedTuple):
    """One GPU instance type.

    Args:
        gpu_memory_gb: of each GPU.
        compute_capability: of the GPU, such as "8.0".
        network_gbit: all interfaces together, Gbit/s.
        fabric: how the GPUs of one instance are joined.
        local_nvme_gb: 0 where there is none, None where it is not known.
        cuda_min: the first CUDA that knows the GPU.
        from_memory: the fields that are general knowledge rather than read in a document; no rule may refuse a job
            because of them.
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
    return [found for name in table("instances")["instances"] if (found := instance(name)) is not None]


def supported_instances(policy: str, engine: str) -> list[str]:
    """The types a job may ask for.

    ``strict`` is what the library's documentation states. ``extended`` adds what AWS supported later and, for the
    native engine, every GPU instance that the table knows.
    """
    smddp = table("instances")["smddp"]
    if policy == "strict":
        return list(smddp["strict"])
    return list(table("instances")["instances"]) if engine == "native" else [*smddp["strict"], *smddp["extended"]]


def suggested_instances(policy: str, engine: str) -> list[str]:
    """The same types in the order in which a person would choose one today."""
    allowed = supported_instances(policy, engine)
    return sorted(allowed, key=table("instances")["suggested"]["order"].index)


class LibraryVersions(NamedTuple):
    """The versions of AWS's library that serve a type: from ``since`` on, and none from ``before`` on."""

    since: str | None = None
    before: str | None = None

    def include(self, version: str) -> bool:
        found = parts(version)
        return not (
            (self.since is not None and found < parts(self.since))
            or (self.before is not None and found >= parts(self.before))
        )


def library_versions(name: str) -> LibraryVersions:
    """Of a type that AWS's library serves in one version at least."""
    return LibraryVersions(**table("instances")["smddp_versions"].get(name, {}))


def replacement(name: str) -> str | None:
    """The type that was meant by one that AWS's own documents mention and that never existed."""
    found: str | None = table("instances")["never_existed"].get(name)
    return found
