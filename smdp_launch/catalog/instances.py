"""Instance types: what they hold, and which of them the data-parallel libraries serve."""

from __future__ import annotations

from dataclasses import dataclass

from smdp_launch.catalog.tables import table


@dataclass(frozen=True)
class Instance:
    name: str
    gpus: int
    gpu: str
    gpu_memory_gb: int
    vcpus: int
    memory_gib: int
    network_gbit: int
    efa_interfaces: int


def instance(name: str) -> Instance | None:
    row = table("instances")["instances"].get(name)
    return Instance(name, **row) if row else None


def supported_instances(policy: str, engine: str) -> list[str]:
    """The types a job may ask for.

    ``strict`` is what the library's documentation states. ``extended`` adds what AWS supported later and, for the
    native engine, every GPU instance that the table knows.
    """
    smddp = table("instances")["smddp"]
    if policy == "strict":
        return list(smddp["strict"])
    return list(table("instances")["instances"]) if engine == "native" else [*smddp["strict"], *smddp["extended"]]


def replacement(name: str) -> str | None:
    """The type that was meant by one that AWS's own documents mention and that never existed."""
    found: str | None = table("instances")["never_existed"].get(name)
    return found
