"""The kinds of input channel. The key of a channel's source (``s3``, ``fsx`` or ``efs``) decides its kind."""

# No `from __future__ import annotations`: with it, pydantic compiles each string annotation at every start.
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from smdp_launch.diagnostics import closest
from smdp_launch.jobfile.model.section import Section
from smdp_launch.jobfile.model.types import FileSystemId, FileSystemPath, GroupName, S3Uri

#: The keys that name a channel's source.
KINDS = ("s3", "fsx", "efs")


class S3Channel(Section):
    s3: Annotated[S3Uri, Field(description="Location in S3: a prefix or a manifest.")]
    mode: Annotated[
        Literal["File", "FastFile", "Pipe"],
        Field(description="File copies the data before training starts; FastFile and Pipe read it while training."),
    ] = "File"
    distribution: Annotated[
        Literal["FullyReplicated", "ShardedByS3Key"],
        Field(description="FullyReplicated: every host gets all objects; ShardedByS3Key: each host gets a part."),
    ] = "FullyReplicated"
    data_type: Annotated[
        Literal["S3Prefix", "ManifestFile", "AugmentedManifestFile"],
        Field(description="Type of the location in `s3`: prefix, manifest or augmented manifest."),
    ] = "S3Prefix"
    attributes: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\n]*$")]] | None,
        Field(max_length=16, description="The attributes to read from an augmented manifest."),
    ] = None
    shuffle: Annotated[
        int | None,
        Field(ge=0, le=2**63 - 1, description="Seed with which the objects are shuffled in each epoch (Pipe mode)."),
    ] = None
    content_type: Annotated[
        str | None, Field(min_length=1, max_length=256, pattern=r"^[^\n]*$", description="MIME type of the data.")
    ] = None
    compression: Annotated[Literal["None", "Gzip"], Field(description="Compression of the objects.")] = "None"
    record_wrapping: Annotated[
        Literal["None", "RecordIO"], Field(description="Wrap each object as a RecordIO record.")
    ] = "None"
    groups: Annotated[
        list[GroupName] | None,
        Field(
            min_length=1, max_length=5, description="Instance groups whose hosts get the data; by default all groups."
        ),
    ] = None


class FsxChannel(Section):
    fsx: Annotated[FileSystemId, Field(description="ID of an FSx for Lustre file system.")]
    path: Annotated[FileSystemPath, Field(description="Folder in the file system; it starts with the mount name.")]
    access: Annotated[
        Literal["ro", "rw"], Field(description="`ro`: the job can only read; `rw`: the job can also write.")
    ] = "ro"
    # What the file system delivers. It is not part of the request.
    throughput_mb_s: Annotated[
        int | None,
        Field(
            gt=0,
            le=2_000_000,
            description="Throughput of the file system in MB/s. Omit the next three keys if you set this key.",
        ),
    ] = None
    deployment_type: Annotated[
        Literal["SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2"] | None,
        Field(description="Type of the file system; with the next two keys, it determines the throughput."),
    ] = None
    throughput_per_unit: Annotated[
        int | None,
        Field(
            gt=0,
            le=10_000,
            description="MB/s for each TiB (PerUnitStorageThroughput). `deployment_type: SCRATCH_2` always has 200.",
        ),
    ] = None
    capacity_gib: Annotated[
        int | None, Field(gt=0, le=10_000_000, description="Capacity in GiB (StorageCapacity).")
    ] = None


class EfsChannel(Section):
    efs: Annotated[FileSystemId, Field(description="ID of an EFS file system.")]
    path: Annotated[FileSystemPath, Field(description="Folder in the file system.")]
    access: Annotated[
        Literal["ro", "rw"], Field(description="`ro`: the job can only read; `rw`: the job can also write.")
    ] = "ro"


def channel_kind(value: Any) -> str:
    """One of ``KINDS``. A misspelt key counts as the most similar kind, so that only the spelling is reported."""
    keys = list(value if isinstance(value, dict) else vars(value) if isinstance(value, Section) else ())
    near = (closest(str(key), KINDS) for key in keys)
    return next((one for one in KINDS if one in keys), None) or next((one for one in near if one), "s3")


Channel = Annotated[
    Annotated[S3Channel, Tag("s3")] | Annotated[FsxChannel, Tag("fsx")] | Annotated[EfsChannel, Tag("efs")],
    Discriminator(channel_kind),
]
