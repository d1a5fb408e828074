"""The part of a run that the diagnosis reads: after the warm-up and before the end, as sums for each rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from smdp_launch.run_metrics.run import PHASES, HostMetrics, RankMetrics, RunMetrics
from smdp_launch.run_metrics.series import Window
from smdp_launch.run_metrics.steady import MOST, clean, is_long, steady, within


@dataclass(frozen=True)
class RankPeriod:
    """The sums of a rank.

    Args:
        seconds: that the windows cover.
        steps: optimizer steps; the batches where the steps are unknown.
        phases: seconds of the training thread by phase; they sum to ``seconds``.
        values: all other sums, such as ``load_s``.
        windows: the number of events.
        load_workers: of the training loader; None: unknown.
        transfer_share: of the engine's exchanges that is no wait for other ranks; None: unknown.
    """

    rank: int
    host: str
    seconds: float
    steps: float
    phases: Mapping[str, float]
    values: Mapping[str, float]
    windows: int
    load_workers: int | None = None
    transfer_share: float | None = None

    def per_step(self, phase: str) -> float:
        return self.phases[phase] / self.steps

    @property
    def step_s(self) -> float:
        return self.seconds / self.steps


@dataclass(frozen=True)
class HostPeriod:
    """The sums of a host, from its ``resources`` events in the same time.

    Args:
        cores: of the machine; None: unknown.
        busy: the mean number of busy cores.
        levels: last values, such as ``gpu_use``.
        modes: the input mode of each channel.
    """

    name: str
    seconds: float = 0.0
    cores: float | None = None
    busy: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Period:
    """What the diagnosis reads.

    Args:
        ranks: those with steps, by rank.
        silent: ranks of the world without a ``timing`` event of a step.
        warm_up: seconds before the period that are left out.
    """

    ranks: list[RankPeriod]
    hosts: Mapping[str, HostPeriod]
    silent: list[int]
    warm_up: float = 0.0


def period(metrics: RunMetrics) -> Period:
    """The steady part of a run."""
    used = steady(metrics)
    if used is None:
        return Period([], {}, _silent(metrics, set()))
    ranks = [_rank(metrics.ranks[rank], windows) for rank, windows in used.windows.items()]
    hosts = {name: _host(one, used.begin, used.end) for name, one in sorted(metrics.hosts.items())}
    found = [one for one in ranks if one is not None]
    warm_up = max(_before(metrics.ranks[rank].timing.windows, windows[0]) for rank, windows in used.windows.items())
    return Period(found, hosts, _silent(metrics, {one.rank for one in found}), warm_up)


def _before(windows: list[Window], first: Window) -> float:
    """The seconds of the windows before ``first``. The clocks of two hosts may differ, so no times are compared."""
    return sum(max(0.0, one.seconds) for one in windows[: windows.index(first)])


def _silent(metrics: RunMetrics, heard: set[int]) -> list[int]:
    world = range(min(metrics.world_size or 0, 1 << 20))
    return sorted((set(world) | set(metrics.ranks)) - heard)


def _rank(metrics: RankMetrics, windows: list[Window]) -> RankPeriod | None:
    sums = _sums(windows)
    steps = sums.get("steps") or sums.get("batches") or 0.0
    phases = {name: sums.get(f"{name}_s", 0.0) for name in PHASES}
    seconds = sum(one.seconds for one in windows)
    named = sum(phases.values())
    if not steps or seconds <= 0:
        return None
    if named > seconds:  # an event of another version, or a broken one: keep the proportions
        phases = {name: value * (seconds / named) for name, value in phases.items()}
    phases["other"] += max(0.0, seconds - sum(phases.values()))
    engine = _sums(within(metrics.engine.windows, windows[0].begin, windows[-1].end))
    return RankPeriod(
        metrics.rank,
        metrics.host,
        seconds,
        steps,
        phases,
        sums,
        len(windows),
        metrics.load_workers,
        _transfer_share(engine),
    )


def _transfer_share(engine: Mapping[str, float]) -> float | None:
    transfer = sum(engine.get(name, 0.0) for name in ("wire_s", "copy_s", "reduce_s"))
    waiting = sum(engine.get(name, 0.0) for name in ("wait_local_s", "wait_hosts_s"))
    return transfer / (transfer + waiting) if transfer + waiting > 0 else None


def _host(metrics: HostMetrics, begin: float, end: float) -> HostPeriod:
    windows = within([one for one in metrics.resources.windows if is_long(one)], begin, end)
    sums, seconds = _sums(windows), sum(one.seconds for one in windows)
    cores = clean(metrics.last.get("cores")) or None
    busy = sums["cpu_s"] / seconds if seconds > 0 and "cpu_s" in sums else None
    return HostPeriod(metrics.name, seconds, cores, busy, sums, dict(metrics.last), dict(metrics.modes))


def _sums(windows: Iterable[Window]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for one in windows:
        for name, value in one.values.items():
            sums[name] = min(MOST, sums.get(name, 0.0) + clean(value))
    return sums


def middle(values: Iterable[float]) -> float:
    """The median; 0 for no values."""
    found = list(values)
    return median(found) if found else 0.0
