"""One step of a job: the computation of a GPU, and its gradients in buckets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from smdp_launch.scaling.traces import MIB, Shape, buckets_of

#: DistributedDataParallel starts with a small bucket, so that the exchange starts early.
FIRST_BUCKET = MIB
#: The bucket size of DistributedDataParallel and of AWS's library.
BUCKET_MIB = 25
BACKWARD_SHARE = 2 / 3
ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_PARTS = 1_000_000  # of a backward pass


class Origin(str, Enum):
    """The origin of an assumption."""

    FLAG = "flag"
    JOB_FILE = "job file"
    RUN = "run"
    CATALOGUE = "catalogue"
    PRICES = "price table"
    DEFAULT = "default"


@dataclass(frozen=True)
class Assumption:
    """An assumption of the study.

    Args:
        name: its subject.
        value: text for the report.
        source: details of the origin: the flag, the field, the run or the publication.
    """

    name: str
    value: str
    origin: Origin
    source: str = ""

    def to_json(self) -> dict[str, str]:
        return {"name": self.name, "value": self.value, "origin": self.origin.value, "source": self.source}


@dataclass(frozen=True)
class Bucket:
    """``ready`` is the share of the backward pass after which the bucket is ready."""

    bytes: int
    ready: float


@dataclass(frozen=True)
class Workload:
    """One step of a job.

    Args:
        step_s: seconds of forward and backward pass on one GPU, without exchange, by instance type.
        buckets: in the order in which they become ready.
        backward_share: the backward pass's share of the step.
        batch: samples of one step on each GPU; None if not known.
        samples: of an epoch; None if not known.
        options: engine options by name.
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
    """``total`` bytes in DistributedDataParallel's buckets, if all gradients are small and become ready evenly."""
    buckets: list[Bucket] = []
    done = 0
    while done < total:
        size = min(total - done, most if buckets else min(most, FIRST_BUCKET))
        done += size
        buckets.append(Bucket(size, done / total))
    return tuple(buckets)


def trace_buckets(shapes: list[Shape], dtype: str, bucket_mib: int) -> tuple[Bucket, ...]:
    """The buckets of a model, whose gradients are as large as its parameters."""
    buckets = buckets_of(shapes, ELEMENT_BYTES[dtype], bucket_mib, _PARTS // 1000)
    return tuple(Bucket(one.bytes, one.ready_us / _PARTS) for one in buckets)
