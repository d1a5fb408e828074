"""What the model of cost is asked about a step of a job, and the seconds of an exchange that follow from its answers.

Every bucket of a step is modelled where that is quick. Where it is not, the model is asked for a single bucket. Each
bucket of the step then waits for those before it and takes as long as that one, in proportion to its bytes. A ring
exchanges one bucket after the other in any case: one bucket of each size gives the same seconds as all buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from smdp_launch.catalog.exchange import efa_rate, link_rate, memory_rate, rate_within_host, ring_rate
from smdp_launch.catalog.instances import Instance
from smdp_launch.scaling.workload import Workload

ENGINE, SMDISTRIBUTED, RING = SCHEDULES = ("engine", "smdistributed-like", "ring")

#: Engine options that change what is exchanged, or when. The others, such as deadlines, have no place in a model.
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
#: Values beyond which the model is of no use, by the costs' names: it would count too much, or overflow.
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

#: Of a file of costs, what belongs to the machine that was measured and not to the hosts that are modelled.
OF_THE_MEASURED_MACHINE = frozenset({"link_rate", "link_burst", "link_latency", "cores", "cores_are_shared"})

#: Hosts squared times buckets that are modelled one by one: some seconds on one processor.
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
    """One question to the model. ``buckets``: bytes, and seconds since the backward pass began until they are ready."""

    hosts: int
    ranks_per_host: int
    schedule: str
    dtype: str
    buckets: tuple[tuple[int, float], ...]
    costs: Costs = field(hash=False)
    options: Mapping[str, str] = field(hash=False)

    def text(self) -> str:
        """As the program reads it."""
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
        """How long an answer takes, in units of its own."""
        return self.hosts * self.hosts * self.ranks_per_host * len(self.buckets)


@dataclass(frozen=True)
class Setting:
    """What is overridden for all instance types.

    Args:
        file: costs of a machine that was measured.
        everywhere: costs of all schedules.
        of_schedule: costs of one, by its name.
        defaults: the model's own.
    """

    defaults: Costs
    file: Costs = field(default_factory=dict)
    everywhere: Costs = field(default_factory=dict)
    of_schedule: Mapping[str, Costs] = field(default_factory=dict)

    def measured(self) -> dict[str, float]:
        """What the file says of processor and memory."""
        return {name: value for name, value in self.file.items() if name not in OF_THE_MEASURED_MACHINE}

    def overrides(self, schedule: str) -> dict[str, float]:
        return {**self.everywhere, **self.of_schedule.get(schedule, {})}


def costs_of(schedule: str, found: Instance, hosts: int, setting: Setting) -> dict[str, float]:
    """What ``schedule`` costs on ``hosts`` hosts of a type, beyond the model's defaults."""
    costs = {"link_rate": link_rate(found), "cores": float(cores(found))}
    memory = memory_rate(found)
    if memory is not None and "memory_rate" in setting.defaults:
        costs["memory_rate"] = memory.bytes_per_second
    costs |= setting.measured()
    if schedule == SMDISTRIBUTED:
        costs |= _smdistributed_costs(found, {**setting.defaults, **costs})
    if schedule == RING:
        costs = {
            "link_rate": ring_rate(found, hosts).bytes_per_second,
            "wire_overhead": 1.0,
            "ring_local_rate": rate_within_host(found).bytes_per_second,
        }
    return {**costs, **setting.overrides(schedule)}


def _smdistributed_costs(found: Instance, engine: Costs) -> dict[str, float]:
    """GPUs add up and copy within a host; its processors add up what comes from the other hosts.

    The model has one price for the bytes of both sums. Of the n + 1 parts of a buffer that each of n ranks of a host
    adds up, n are sums within the host, so that 1 / (n + 1) of the price is left.
    """
    costs = {"copy_byte": 0.0, "fold_byte": engine["fold_byte"] / (found.gpus + 1)}
    if "memory_rate" in engine:
        costs["memory_rate"] = 0.0  # no bound: the model would count the bytes that the GPUs add up and copy
    efa = efa_rate(found)
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
    """Why the model has no use for this value of a cost."""
    least, most = _BOUNDS.get(name, _SECONDS)
    return None if least <= value <= most else f"{name} is {value:g}, and has to be from {least:g} to {most:g}"


def default_options(found: Instance, setting: Setting) -> dict[str, str]:
    """What the engine decides by the host that it finds itself on, which the model cannot see.

    By default a rank has as many copy threads as half of its share of the processors, less the one that sends, and at
    most 4 (``Engine::copy_threads``).
    """
    if "hand_over" not in setting.defaults:
        return {}  # a model of before there were copy threads
    return {"SMDP_COPY_THREADS": str(min(4, max(0, found.vcpus // (2 * found.gpus) - 1)))}


def cores(found: Instance) -> int:
    """Of one host: a vCPU of x86_64 is one of two threads of a core."""
    return found.vcpus // 2 if found.architecture == "x86_64" else found.vcpus


@dataclass(frozen=True)
class Exchange:
    """How long ``schedule`` takes on so many hosts, from the answer to one question.

    Args:
        ready: bytes of each bucket of the step and seconds until it is ready.
    """

    schedule: str
    hosts: int
    method: Method
    question: Question
    ready: tuple[tuple[int, float], ...]

    def end_s(self, done: Sequence[float]) -> float:
        """Seconds from the beginning of the backward pass until every rank has every sum.

        Args:
            done: when each bucket of the question was done.
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
        """One bucket at a time."""
        free = 0.0
        for size, ready in self.ready:
            free = max(free, ready) + seconds[size]
        return free


def exchange(
    workload: Workload,
    found: Instance,
    schedule: str,
    hosts: int,
    setting: Setting,
    *,
    method: Method | None = None,
) -> Exchange:
    """What has to be asked for one row of a table.

    Args:
        method: None for the one that this many hosts and buckets call for.
    """
    backward = workload.step_s[found.name] * workload.backward_share
    ready = tuple((one.bytes, one.ready * backward) for one in workload.buckets)
    if method is None:
        method = _method(schedule, hosts, len(ready))
    options = {} if schedule == RING else {**default_options(found, setting), **(workload.options or {})}
    costs = costs_of(schedule, found, hosts, setting)
    if options.get("SMDP_COPY_THREADS") == "0" and "memory_rate" not in setting.overrides(schedule):
        # Copies within a turn reserve the memory ahead of its time: ranks would wait for each other's whole turns.
        costs.pop("memory_rate", None)

    def question(buckets: Sequence[tuple[int, float]]) -> Question:
        kind = RING if schedule == RING else ENGINE
        return Question(hosts, found.gpus, kind, workload.dtype, tuple(buckets), costs, options)

    return Exchange(schedule, hosts, method, question(_asked(method, ready)), ready)


def _method(schedule: str, hosts: int, buckets: int) -> Method:
    if schedule == RING:
        return Method.EVERY_SIZE
    return Method.EVERY_BUCKET if hosts * hosts * buckets <= _EVERY_BUCKET else Method.ONE_BUCKET


def _asked(method: Method, ready: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """The buckets of the question."""
    if method is Method.EVERY_BUCKET:
        return ready
    if method is Method.EVERY_SIZE:
        return [(size, 0.0) for size in sorted({size for size, _ in ready})]
    return [(typical(ready), 0.0)]


def typical(ready: Sequence[tuple[int, float]]) -> int:
    """The size of bucket that half of the bytes are in buckets of at most."""
    total, held = sum(size for size, _ in ready), 0
    for size in sorted(size for size, _ in ready):
        held += size
        if 2 * held >= total:
            return size
    raise ValueError("a step without gradients has nothing to exchange")
