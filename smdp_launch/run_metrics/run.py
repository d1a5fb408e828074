"""Collects the events of a run into series. Does no I/O.

The values come from the job: a value that is no finite number is left out, and the number of names is limited.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from smdp_launch.run_metrics.hangs import Hang, HungRank, cause_of, reported
from smdp_launch.run_metrics.network import NetworkReport
from smdp_launch.run_metrics.saves import SaveMetrics
from smdp_launch.run_metrics.series import MetricSeries, Window, WindowSeries

#: Where a training thread spends its time (event ``timing``). The seconds of a window add up to its length.
PHASES = (
    "input",
    "copy",
    "forward",
    "backward",
    "exchange",
    "optimizer",
    "checkpoint",
    "logging",
    "evaluation",
    "other",
)
#: Limits for what a script may send.
_MOST_METRICS = 64
_MOST_MOMENTS = 1000
_ENVELOPE = frozenset({"smdp_event", "event", "time", "rank", "host", "step", "steps"})
_LEFT_OUT = frozenset({"smdp_event", "time", "rank"})
_MOMENTS = frozenset({"worker_exit", "host_failed", "fault", "checkpoints_restored", "workers_started", "hang"})
#: Steps of the last so many seconds give the current rate.
_RECENT = 60.0
#: After so many usual intervals without a report of a step, the rate of the reports is no current one.
_MOST_INTERVALS = 3


@dataclass
class RankMetrics:
    """A worker.

    Args:
        timing: the fields of its ``timing`` events, as sums: ``steps``, ``samples``, ``input_s`` and so on.
        engine: the fields of its ``engine`` events.
        late: seconds that this rank waited for others, by their rank.
        load_workers: of its loader; 0: it loads in next(). None: unknown.
        gpu_memory: the greatest number of bytes that torch allocated; None without a GPU.
    """

    rank: int
    host: str
    timing: WindowSeries = field(default_factory=WindowSeries)
    engine: WindowSeries = field(default_factory=WindowSeries)
    late: dict[int, float] = field(default_factory=dict)
    load_workers: int | None = None
    gpu_memory: float | None = None


@dataclass
class HostMetrics:
    """A host: the fields of its ``resources`` events, as sums, and the last value of those that are no sums.

    Args:
        last: ``cores``, ``memory_used``, ``memory_total``, ``gpus``, ``gpu_use`` and so on.
        modes: the input mode of each channel.
    """

    name: str
    resources: WindowSeries = field(default_factory=WindowSeries)
    last: dict[str, float] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Moment:
    """An event of a host or a worker at one time.

    Args:
        time: seconds since 1970.
        worker: the rank; None for the host.
    """

    time: float
    host: str
    worker: int | None
    name: str
    fields: Mapping[str, Any]


@dataclass
class RunMetrics:
    """The series of a run. Add its events in the order of their time.

    Args:
        began: time of the first event, in seconds since 1970.
        last: time of the last event.
        step: the last step that rank 0 reported.
        first_step: the lowest step that it reported.
        steps: how many it will take.
        metrics: what the script reported with its steps, such as ``loss``.
        results: the fields of the last ``result`` event.
        world_size: the number of workers.
        network: what the probe of the network at the start found; None without a probe.
        saves: of checkpoints, as `smdp_engine.checkpoint` reports them.
        progress: the reported steps over time, as a metric whose value is the step.
        ended: the job has ended, or a worker or host has failed, which ends it.
    """

    began: float | None = None
    last: float | None = None
    step: int | None = None
    first_step: int | None = None
    steps: int | None = None
    metrics: dict[str, MetricSeries] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    world_size: int | None = None
    ranks: dict[int, RankMetrics] = field(default_factory=dict)
    hosts: dict[str, HostMetrics] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    network: NetworkReport | None = None
    saves: SaveMetrics = field(default_factory=SaveMetrics)
    progress: MetricSeries = field(default_factory=MetricSeries)
    ended: bool = False
    _reports: deque[tuple[float, int]] = field(default_factory=deque)  # recent steps, with their time
    _reporter: str = ""  # the host whose worker reports them
    _heard: dict[str, float] = field(default_factory=dict)  # time of the last event of each host, by its own clock
    _hanging: dict[str, tuple[HungRank, ...]] = field(default_factory=dict)  # by host
    _hang_causes: frozenset[int] | None = None  # the ranks that the first host names

    def add(self, name: str, fields: Mapping[str, Any], host: str, worker: int | None, time: float) -> None:
        """Add an event.

        Args:
            host: of the log that has the event.
            worker: the rank that wrote it; None for the host.
            time: of its log line, in seconds since 1970; the event's own time is preferred.
        """
        at = _number(fields, "time") or time
        self.began = at if self.began is None else min(self.began, at)
        self.last = at if self.last is None else max(self.last, at)
        self._heard[host] = at
        if name == "timing" and worker is not None:
            self._timing(worker, host, fields, at)
        elif name == "engine" and worker is not None:
            self._engine(worker, host, fields, at)
        elif name == "resources" and worker is None:
            self._resources(host, fields, at)
        elif name == "network" and worker is None:
            self.network = NetworkReport.of(fields)
        elif name == "step":
            self._step(fields, host, at)
        elif name == "checkpoint_saved":
            self.saves.add(fields)
        elif name == "result":
            self.results = dict(fields)
        elif name == "hang_cause":
            ranks = fields.get("ranks")
            self._hang_causes = frozenset(one for one in ranks if type(one) is int) if isinstance(ranks, list) else None
        elif name in _MOMENTS:
            self._moment(Moment(at, host, worker, name, fields))

    @property
    def hang(self) -> Hang | None:
        """The hang that has been reported and is not over, or was not when the job ended; None if there is none."""
        if self.step is not None and self.steps is not None and self.step >= self.steps:
            return None  # since the last step, the hosts no longer watch the ranks
        found = cause_of((one for ranks in self._hanging.values() for one in ranks), self._hang_causes)
        return replace(found, is_of_ended_job=self.ended) if found is not None else None

    @property
    def steps_per_second(self) -> float | None:
        """Of the last minute; None before the second report of a step, and if the job makes no progress."""
        if self.hang is not None:
            return None
        if len(self._reports) >= 2:
            (begin, first), (end, last) = self._reports[0], self._reports[-1]
            usual, silent = (end - begin) / (len(self._reports) - 1), self._heard[self._reporter] - end
            is_current = silent <= max(_RECENT, _MOST_INTERVALS * usual)
            if end > begin and last > first and is_current:
                return (last - first) / (end - begin)
        recent = self._recent_timing()
        steps = max((one.values.get("steps", 0.0) / one.seconds for one in recent), default=0.0)
        return steps or None

    @property
    def samples_per_second(self) -> float | None:
        """Of all workers in the last minute; None if the batches have no tensor, before the second window, and if the
        job makes no progress."""
        if self.hang is not None:
            return None
        rate = sum(one.values.get("samples", 0.0) / one.seconds for one in self._recent_timing())
        return rate or None

    @property
    def seconds_left(self) -> float | None:
        """At the current rate; None without a number of steps or a rate, or if the job passes its number of steps."""
        rate = self.steps_per_second
        if rate is None or self.step is None or self.steps is None or self.step > self.steps:
            return None
        return (self.steps - self.step) / rate

    def _recent_timing(self) -> list[Window]:
        """The sums of the last minute of each rank; its last window where a window is longer. Without the first window,
        which includes the warm-up."""
        totals = (one.timing.recent(_RECENT, since=1) for one in self.ranks.values())
        return [one for one in totals if one is not None and one.seconds > 0]

    def _rank(self, rank: int, host: str) -> RankMetrics:
        return self.ranks.setdefault(rank, RankMetrics(rank, host))

    def _timing(self, rank: int, host: str, fields: Mapping[str, Any], at: float) -> None:
        length = _number(fields, "window")
        if not length or length <= 0:
            return
        one = self._rank(rank, host)
        sums = _sums(fields, {"window", "load_workers", "gpu_memory_bytes"})
        one.timing.add(Window(at - length, at, sums))
        workers, memory = _count(fields, "load_workers"), _number(fields, "gpu_memory_bytes")
        one.load_workers = workers if workers is not None else one.load_workers
        one.gpu_memory = max(memory, one.gpu_memory or 0.0) if memory is not None else one.gpu_memory

    def _engine(self, rank: int, host: str, fields: Mapping[str, Any], at: float) -> None:
        length = _number(fields, "seconds")
        if not length or length <= 0:
            return
        one = self._rank(rank, host)
        one.engine.add(Window(at - length, at, _sums(fields, {"seconds"})))
        late = fields.get("late")
        for entry in late if isinstance(late, list) else []:
            if isinstance(entry, Mapping):
                other, seconds = _count(entry, "rank"), _number(entry, "seconds")
                if other is not None and seconds is not None:
                    one.late[other] = one.late.get(other, 0.0) + seconds

    def _resources(self, host: str, fields: Mapping[str, Any], at: float) -> None:
        length = _number(fields, "window")
        if not length or length <= 0:
            return
        one = self.hosts.setdefault(host, HostMetrics(host))
        levels = {name for name in fields if _is_level(name)}
        one.resources.add(Window(at - length, at, _sums(fields, levels | {"window"})))
        one.last.update(_numbers({name: fields[name] for name in levels}, set()))
        for name, value in fields.items():
            if name.startswith("channel_") and name.endswith("_mode") and isinstance(value, str):
                one.modes[name[len("channel_") : -len("_mode")]] = value

    def _moment(self, moment: Moment) -> None:
        if len(self.moments) < _MOST_MOMENTS:
            self.moments.append(moment)
        if moment.name == "workers_started":
            self.world_size = _count(moment.fields, "world_size") or self.world_size
            self.ended = False  # a new attempt
        elif moment.name in ("worker_exit", "host_failed"):
            self.ended = True
        if moment.name == "hang" and moment.fields.get("what") == "reported":
            self._hanging[moment.host] = reported(moment.fields, moment.host, moment.time)
        elif moment.name in ("hang", "workers_started"):
            self._hanging.pop(moment.host, None)
            self._hang_causes = self._hang_causes if self._hanging else None

    def _step(self, fields: Mapping[str, Any], host: str, at: float) -> None:
        step = _count(fields, "step")
        if step is None:
            return
        started_again = self.step is not None and step < self.step
        if started_again or (self._reports and at < self._reports[-1][0]):  # or the clock was set back
            self._reports.clear()
        self.step, self.steps = step, _count(fields, "steps") or self.steps
        self._reports.append((at, step))
        self._reporter = host
        while len(self._reports) > 2 and self._reports[0][0] < at - _RECENT:
            self._reports.popleft()
        self.progress.add(at, step, step)
        self.first_step = step if self.first_step is None else min(self.first_step, step)
        for name in (one for one in fields if one not in _ENVELOPE):
            value, odd = _number(fields, name), _not_finite(fields[name])
            if (value is None and odd is None) or (name not in self.metrics and len(self.metrics) >= _MOST_METRICS):
                continue
            series = self.metrics.setdefault(name, MetricSeries())
            if value is not None:
                series.add(at, step, value)
            elif odd is not None:
                series.add_not_finite(step, odd)


def _is_level(name: str) -> bool:
    """Whether the field of a ``resources`` event is a level, such as the memory in use, and no sum over the window."""
    return name in ("cores", "memory_used", "memory_total", "workers_memory") or name.startswith("gpu")


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _not_finite(value: object) -> str | None:
    """The name of a number that is not finite (docs/reference/events.md); None for other values."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str) and value in ("nan", "inf", "-inf") else None


def _numbers(fields: Mapping[str, Any], without: set[str] | frozenset[str]) -> dict[str, float]:
    left_out = without | _LEFT_OUT
    found = {name: _number(fields, name) for name in fields if name not in left_out}
    return {name: value for name, value in found.items() if value is not None}


def _sums(fields: Mapping[str, Any], without: set[str]) -> dict[str, float]:
    """Seconds, bytes and counts, which are never negative."""
    return {name: value for name, value in _numbers(fields, without).items() if value >= 0}


def _count(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return value if is_count else None
