"""One step of a job as the model sees it: the computation of a GPU, and the buckets of gradients that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from smdp_launch.scaling.traces import Shape, buckets_of

MIB = 1 << 20
#: DistributedDataParallel begins with a small bucket, so that the exchange begins early.
FIRST_BUCKET = MIB
#: What DistributedDataParallel fills a bucket to, and AWS's library.
BUCKET_MIB = 25
BACKWARD_SHARE = 2 / 3
ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_PARTS = 1_000_000  # of a backward pass


class Origin(str, Enum):
    """Where an assumption is from."""

    FLAG = "flag"
    JOB_FILE = "job file"
    RUN = "run"
    CATALOGUE = "catalogue"
    PRICES = "price table"
    DEFAULT = "default"


@dataclass(frozen=True)
class Assumption:
    """Something that a result rests on.

    Args:
        name: of what.
        value: for a person.
        source: beyond the origin: the flag, the field, the run, the publication.
    """

    name: str
    value: str
    origin: Origin
    source: str = ""

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "value": self.value, "origin": self.origin.value, "source": self.source}


@dataclass(frozen=True)
class Bucket:
    """``ready`` is the share of the backward pass after which its gradients are there."""

    bytes: int
    ready: float


@dataclass(frozen=True)
class Workload:
    """Args:
    step_s: by instance type: forward and backward pass of one GPU, without any exchange.
    buckets: in the order in which they become ready.
    backward_share: of the step.
    batch: samples of one step on each GPU; None where that is not known.
    samples: of an epoch; None where that is not known.
    options: of the engine, by their names.
    """

    step_s: Mapping[str, float]
    buckets: tuple[Bucket, ...]
    dtype: str = "float32"
    backward_share: float = BACKWARD_SHARE
    batch: int | None = None
    samples: int | None = None
    options: Mapping[str, str] | None = None

    @property
    def gradient_bytes(self) -> int:
        return sum(one.bytes for one in self.buckets)


def even_buckets(total: int, most: int) -> tuple[Bucket, ...]:
    """``total`` bytes as DistributedDataParallel fuses them where every gradient is small, each byte ready in turn."""
    buckets: list[Bucket] = []
    done = 0
    while done < total:
        size = min(total - done, most if buckets else min(most, FIRST_BUCKET))
        done += size
        buckets.append(Bucket(size, done / total))
    return tuple(buckets)


def trace_buckets(shapes: list[Shape], dtype: str, bucket_mib: int) -> tuple[Bucket, ...]:
    """The buckets of a model, whose gradients are as large as its parameters."""
    made = buckets_of(shapes, ELEMENT_BYTES[dtype], bucket_mib, _PARTS // 1000)
    return tuple(Bucket(one.bytes, one.ready_us / _PARTS) for one in made)
