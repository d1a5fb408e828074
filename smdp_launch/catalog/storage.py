"""What each storage of training data delivers, as its service documents it. Rates are in MB/s: 1,000,000 bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

from smdp_launch.catalog.tables import table


class Lustre(NamedTuple):
    """A deployment type of FSx for Lustre with a throughput for each unit of storage.

    Args:
        type: such as ``PERSISTENT_2``.
        storage: ``SSD`` or ``HDD``.
        unit_mb_s: MB/s for each TiB that is provisioned.
        network_burst_mb_s: for each TiB, for data in the memory of the servers; None: no burst is documented.
        disk_burst_mb_s: for each TiB, for other data; None: no burst is documented.
        sizes: capacities in GiB below the first multiple of ``step``.
        step: larger capacities are multiples of it.
        efa_step: capacities with EFA are multiples of it; None: without EFA.
        sources: keys of `source_texts`.
    """

    type: str
    storage: str
    unit_mb_s: int
    network_burst_mb_s: int | None
    disk_burst_mb_s: int | None
    sizes: tuple[int, ...]
    step: int
    efa_step: int | None
    sources: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Such as ``PERSISTENT_2 SSD 250``."""
        return f"{self.type} {self.storage} {self.unit_mb_s}"

    def throughput(self, capacity_gib: int) -> float:
        """MB/s. The guide counts 1,200 GiB as 1.2 TiB here: 240 MB/s with 200 MB/s for each TiB."""
        return self.unit_mb_s * capacity_gib / 1000

    def has_capacity(self, gib: int) -> bool:
        """Whether file systems of this size exist."""
        return gib in self.sizes or (gib > 0 and gib % self.step == 0)

    def nearest(self, gib: int) -> tuple[int, ...]:
        """The next smaller and the next larger capacity; one of them if there is no smaller one."""
        below = [one for one in (*self.sizes, gib // self.step * self.step) if 0 < one <= gib]
        above = [one for one in (*self.sizes, -(-gib // self.step) * self.step) if one >= max(gib, 1)]
        return (*([max(below)] if below else []), min(above))


class FileMode(NamedTuple):
    """Args:
    download_mb_s: of the copy before the training, for each host.
    volume_mb_s: of the host's volume, from which the training reads.
    sources: keys of `source_texts`.
    assumption: what no source states as such.
    """

    download_mb_s: int
    volume_mb_s: int
    sources: tuple[str, ...]
    assumption: str


class Efs(NamedTuple):
    """Outside of Elastic mode. Args:
    read_mb_s: of the file system.
    host_mb_s: of one host.
    sources: keys of `source_texts`.
    """

    read_mb_s: int
    host_mb_s: int
    sources: tuple[str, ...]


class S3(NamedTuple):
    """Args:
    gets_per_prefix: requests a second.
    fast_file_object_mb: the size from which FastFile reads well.
    sources: keys of `source_texts`.
    assumption: what no source states as such.
    """

    gets_per_prefix: int
    fast_file_object_mb: int
    sources: tuple[str, ...]
    assumption: str


def lustre_types() -> list[Lustre]:
    return [
        Lustre(
            one["type"],
            one["storage"],
            one["unit_mb_s"],
            one.get("network_burst_mb_s"),
            one.get("disk_burst_mb_s"),
            tuple(one["sizes"]),
            one["step"],
            one.get("efa_step"),
            tuple(one["sources"]),
        )
        for one in table("storage")["lustre"]
    ]


def lustre_client(efa: bool) -> int:
    """MB/s of one host that reads from FSx for Lustre."""
    return int(table("storage")["lustre_client"]["efa_mb_s" if efa else "mb_s"])


def tiering_step() -> tuple[int, int]:
    """The MB/s of FSx Intelligent-Tiering are multiples of the first number, and at most the second."""
    known = table("storage")["intelligent_tiering"]
    return known["step_mb_s"], known["most_mb_s"]


def tiering_sources() -> tuple[str, ...]:
    """Keys of `source_texts`."""
    return tuple(table("storage")["intelligent_tiering"]["sources"])


def file_mode() -> FileMode:
    return FileMode(**_row("file_mode"))


def efs() -> Efs:
    return Efs(**_row("efs"))


def s3() -> S3:
    return S3(**_row("s3"))


def _row(name: str) -> dict[str, Any]:
    row = table("storage")[name]
    return {**row, "sources": tuple(row["sources"])}


def source_texts() -> dict[str, str]:
    """The title of each source, with its address and the day on which it was checked, by its key."""
    known = table("storage")["sources"]
    return {key: f"{one['title']}, {one['url']}, {one['checked']}" for key, one in known.items()}


def checked() -> str:
    """The day on which the table was checked."""
    return str(table("storage")["checked"])
