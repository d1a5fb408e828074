"""The questions to the cost model about a step of a job, and the seconds of an exchange from its answers.

If it is fast enough, every bucket of a step is modelled. Otherwise the model simulates a single bucket. Each bucket of
the step then waits for the buckets before it, and takes as long as the single bucket, in proportion to its bytes. A
ring always exchanges one bucket after the other: one bucket of each size gives the same seconds as all buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from smdp_launch.catalog.exchange import efa_rate, interface_rate, memory_rate, rate_within_host, ring_rate
from smdp_launch.catalog.instances import Instance
from smdp_launch.scaling.workload import Workload

ENGINE, SMDISTRIBUTED, RING = SCHEDULES = ("engine", "smdistributed-like", "ring")

#: Engine options that change what is exchanged, or when. The model ignores the others, such as deadlines.
SCHEDULE_OPTIONS = frozenset(
    {
        "SMDP_STREAMS",
        "SMDP_PIECE_KIB",
        "SMDP_SMALL_KIB",
        "SMDP_BULK_KIB",
        "SMDP_BUFFERS_IN_FLIGHT",
        "SMDP_WIRE_DTYPE",
        "SMDP_COPY_THREADS",
    }
)
#: The smallest and largest value of each cost. Outside of these the model would run too long, or overflow.
_BOUNDS = {
    "cores": (1.0, 4096.0),
    "cores_are_shared": (0.0, 1.0),
    "link_rate": (1e3, 1e15),
    "ring_local_rate": (1e3, 1e15),
    "memory_rate": (0.0, 1e15),
    "link_burst": (0.0, 1e12),
    "link_quantum": (64.0, 1e12),
    "ring_slice_bytes": (4096.0, 1e12),
    "wire_overhead": (0.1, 100.0),
}
_SECONDS = (0.0, 60.0)  # of every other cost

#: The costs in a file that belong to the measured machine, not to the modelled hosts.
OF_THE_MEASURED_MACHINE = frozenset({"link_rate", "link_burst", "link_latency", "cores", "cores_are_shared"})

#: Up to this number of hosts squared times buckets, every bucket is modelled: some seconds on one processor.
_EVERY_BUCKET = 640
_GRAIN = 8  # the model counts in elements of at most 8 bytes

Costs = Mapping[str, float]


class Method(str, Enum):
    """How an exchange is modelled."""

    EVERY_BUCKET = "every bucket"
    ONE_BUCKET = "one bucket"
    EVERY_SIZE = "every size"


@dataclass(frozen=True)
class Question:
    """One question to the model.

    Args:
        buckets: bytes, and seconds from the start of the backward pass until the bucket is ready.
    """

    hosts: int
    ranks_per_host: int
    schedule: str
    dtype: str
    buckets: tuple[tuple[int, float], ...]
    costs: Costs = field(hash=False)
    options: Mapping[str, str] = field(hash=False)

    def text(self) -> str:
        """The question in the program's input format."""
        lines = [
            f"hosts {self.hosts}",
            f"ranks_per_host {self.ranks_per_host}",
            f"schedule {self.schedule}",
            f"dtype {self.dtype}",
            *(f"cost {name} {value!r}" for name, value in sorted(self.costs.items())),
            *(f"option {name} {value}" for name, value in sorted(self.options.items())),
            *(f"bucket {size + -size % _GRAIN} {round(ready, 9)!r}" for size, ready in self.buckets),
        ]
        return "\n".join(lines) + "\n"

    @property
    def work(self) -> int:
        """The relative time of an answer."""
        return self.hosts * self.hosts * self.ranks_per_host * len(self.buckets)


@dataclass(frozen=True)
class Setting:
    """The costs that do not depend on the instance type.

    Args:
        defaults: the costs of the model.
        file: the costs of a measured machine.
        everywhere: overrides for all schedules.
        of_schedule: overrides by schedule.
    """

    defaults: Costs
    file: Costs = field(default_factory=dict)
    everywhere: Costs = field(default_factory=dict)
    of_schedule: Mapping[str, Costs] = field(default_factory=dict)

    def measured(self) -> dict[str, float]:
        """The costs of processor and memory in the file."""
        return {name: value for name, value in self.file.items() if name not in OF_THE_MEASURED_MACHINE}

    def overrides(self, schedule: str) -> dict[str, float]:
        return {**self.everywhere, **self.of_schedule.get(schedule, {})}


def costs_of(schedule: str, type_: Instance, hosts: int, setting: Setting) -> dict[str, float]:
    """The costs of ``schedule`` on ``hosts`` hosts of a type that differ from the model's defaults."""
    # Over TCP, the engine uses one interface of a host.
    costs = {"link_rate": interface_rate(type_), "cores": float(cores(type_))}
    memory = memory_rate(type_)
    if memory is not None and "memory_rate" in setting.defaults:
        costs["memory_rate"] = memory.bytes_per_second
    costs |= setting.measured()
    if schedule == SMDISTRIBUTED:
        costs |= _smdistributed_costs(type_, {**setting.defaults, **costs})
    if schedule == RING:
        costs = {
            "link_rate": ring_rate(type_, hosts).bytes_per_second,
            "wire_overhead": 1.0,
            "ring_local_rate": rate_within_host(type_).bytes_per_second,
        }
    return {**costs, **setting.overrides(schedule)}


def _smdistributed_costs(type_: Instance, engine: Costs) -> dict[str, float]:
    """The GPUs add and copy within a host; its processors add the data of other hosts.

    The model has one cost per byte for both sums. Each of the n ranks of a host adds n + 1 parts of a buffer. n of them
    are sums within the host, so 1 / (n + 1) of the cost remains.
    """
    costs = {"copy_byte": 0.0, "fold_byte": engine["fold_byte"] / (type_.gpus + 1)}
    if "memory_rate" in engine:
        costs["memory_rate"] = 0.0  # no limit: the model would count the bytes that the GPUs add and copy
    efa = efa_rate(type_)
    if efa is None:
        return costs
    return {
        **costs,
        "link_rate": efa.bytes_per_second,
        "wire_overhead": 1.0,
        "send_byte": 0.0,
        "receive_byte": 0.0,
    }


def cost_problem(name: str, value: float) -> str | None:
    """The reason why this value of a cost is out of range; None if it is not."""
    least, most = _BOUNDS.get(name, _SECONDS)
    return None if least <= value <= most else f"{name} is {value:g}, but must be from {least:g} to {most:g}"


def default_options(type_: Instance, setting: Setting) -> dict[str, str]:
    """The engine options whose default depends on the host, which the model does not know.

    The default number of copy threads of a rank is half of its share of the processors, minus one for the thread that
    sends, and at most 4 (``Engine::copy_threads``).
    """
    if "hand_over" not in setting.defaults:
        return {}  # an older model without copy threads
    return {"SMDP_COPY_THREADS": str(min(4, max(0, type_.vcpus // (2 * type_.gpus) - 1)))}


def cores(type_: Instance) -> int:
    """The cores of one host: on x86_64 a vCPU is one of two threads of a core."""
    return type_.vcpus // 2 if type_.architecture == "x86_64" else type_.vcpus


@dataclass(frozen=True)
class Exchange:
    """The time of ``schedule`` on ``hosts`` hosts, from the answer to one question.

    Args:
        ready: bytes of each bucket of the step, and seconds until it is ready.
    """

    schedule: str
    hosts: int
    method: Method
    question: Question
    ready: tuple[tuple[int, float], ...]

    def end_s(self, done: Sequence[float]) -> float:
        """The seconds from the start of the backward pass until every rank has every sum.

        Args:
            done: the seconds at which each bucket of the question is done.
        """
        if self.method is Method.EVERY_BUCKET:
            return max(done)
        if self.method is Method.EVERY_SIZE:
            return self._queued(dict(self._seconds_by_size(done)))
        (size, _), *_ = self.question.buckets
        seconds = max(done) / size
        return self._queued({size: seconds * size for size, _ in self.ready})

    def _seconds_by_size(self, done: Sequence[float]) -> Iterator[tuple[int, float]]:
        before = 0.0
        for (size, _), at in zip(self.question.buckets, done, strict=True):
            yield size, at - before
            before = at

    def _queued(self, seconds: Mapping[int, float]) -> float:
        """The end of the last bucket if they are exchanged one after the other."""
        free = 0.0
        for size, ready in self.ready:
            free = max(free, ready) + seconds[size]
        return free


def exchange(
    workload: Workload,
    type_: Instance,
    schedule: str,
    hosts: int,
    setting: Setting,
    *,
    method: Method | None = None,
) -> Exchange:
    """The exchange for one row of a table.

    Args:
        method: None for the default method for this number of hosts and buckets.
    """
    backward = workload.step_s[type_.name] * workload.backward_share
    ready = tuple((one.bytes, one.ready * backward) for one in workload.buckets)
    if method is None:
        method = _method(schedule, hosts, len(ready))
    options = {} if schedule == RING else {**default_options(type_, setting), **(workload.options or {})}
    costs = costs_of(schedule, type_, hosts, setting)
    if options.get("SMDP_COPY_THREADS") == "0" and "memory_rate" not in setting.overrides(schedule):
        # Without copy threads the model would reserve memory for whole turns, and ranks would wait for each other.
        costs.pop("memory_rate", None)

    def question(buckets: Sequence[tuple[int, float]]) -> Question:
        kind = RING if schedule == RING else ENGINE
        return Question(hosts, type_.gpus, kind, workload.dtype, tuple(buckets), costs, options)

    return Exchange(schedule, hosts, method, question(_buckets(method, ready)), ready)


def _method(schedule: str, hosts: int, buckets: int) -> Method:
    if schedule == RING:
        return Method.EVERY_SIZE
    return Method.EVERY_BUCKET if hosts * hosts * buckets <= _EVERY_BUCKET else Method.ONE_BUCKET


def _buckets(method: Method, ready: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """The buckets of the question."""
    if method is Method.EVERY_BUCKET:
        return ready
    if method is Method.EVERY_SIZE:
        return [(size, 0.0) for size in sorted({size for size, _ in ready})]
    return [(typical(ready), 0.0)]


def typical(ready: Sequence[tuple[int, float]]) -> int:
    """The median bucket size, weighted by bytes."""
    total, below = sum(size for size, _ in ready), 0
    for size in sorted(size for size, _ in ready):
        below += size
        if 2 * below >= total:
            return size
    raise ValueError("a step without gradients has nothing to exchange")
