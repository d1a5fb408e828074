"""The part of a run that the diagnosis reads: after the warm-up and before the end, as sums for each rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from smdp_launch.run_metrics.run import PHASES, HostMetrics, RankMetrics, RunMetrics
from smdp_launch.run_metrics.series import Window

#: Numbers outside are no seconds, bytes or counts of a job. The limits keep sums and quotients finite.
_LEAST, _MOST = 1e-9, 1e18
#: So many windows must remain before the last one, in which the script also ends, is left out.
_ENOUGH = 4


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
    """The steady part of a run. The warm-up lasts until the end of the first window with a step, on all ranks."""
    chosen = {rank: _trained(one.timing.windows) for rank, one in metrics.ranks.items()}
    chosen = {rank: windows for rank, windows in chosen.items() if windows}
    if not chosen:
        return Period([], {}, _silent(metrics, set()))
    begin = max(windows[0].end if len(windows) > 2 else windows[0].begin for windows in chosen.values())
    end = min(windows[-2].end if len(windows) > _ENOUGH else windows[-1].end for windows in chosen.values())
    used = {rank: _within(windows, begin, end) for rank, windows in sorted(chosen.items())}
    ranks = [_rank(metrics.ranks[rank], windows) for rank, windows in used.items()]
    hosts = {name: _host(one, begin, end) for name, one in sorted(metrics.hosts.items())}
    found = [one for one in ranks if one is not None]
    warm_up = max(_before(metrics.ranks[rank].timing.windows, windows[0]) for rank, windows in used.items())
    return Period(found, hosts, _silent(metrics, {one.rank for one in found}), warm_up)


def _before(windows: list[Window], first: Window) -> float:
    """The seconds of the windows before ``first``. The clocks of two hosts may differ, so no times are compared."""
    return sum(max(0.0, one.seconds) for one in windows[: windows.index(first)])


def _silent(metrics: RunMetrics, heard: set[int]) -> list[int]:
    world = range(min(metrics.world_size or 0, 1 << 20))
    return sorted((set(world) | set(metrics.ranks)) - heard)


def _done(window: Window) -> float:
    values = window.values
    return max(_clean(values.get("steps")), _clean(values.get("batches")))


def _trained(windows: list[Window]) -> list[Window]:
    """From the first window with a step to the last one."""
    with_steps = [index for index, one in enumerate(windows) if _done(one) > 0 and _LEAST < one.seconds < _MOST]
    if not with_steps:
        return []
    return [one for one in windows[with_steps[0] : with_steps[-1] + 1] if _LEAST < one.seconds < _MOST]


def _within(windows: list[Window], begin: float, end: float) -> list[Window]:
    """The windows with their middle in the period; all if there is none, since the ranks' windows are not aligned."""
    return [one for one in windows if begin <= (one.begin + one.end) / 2 <= end] or windows


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
    engine = _sums(_within(metrics.engine.windows, windows[0].begin, windows[-1].end))
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
    windows = [one for one in metrics.resources.windows if _LEAST < one.seconds < _MOST]
    windows = _within(windows, begin, end)
    sums, seconds = _sums(windows), sum(one.seconds for one in windows)
    cores = _clean(metrics.last.get("cores")) or None
    busy = sums["cpu_s"] / seconds if seconds > 0 and "cpu_s" in sums else None
    return HostPeriod(metrics.name, seconds, cores, busy, sums, dict(metrics.last), dict(metrics.modes))


def _sums(windows: Iterable[Window]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for one in windows:
        for name, value in one.values.items():
            sums[name] = min(_MOST, sums.get(name, 0.0) + _clean(value))
    return sums


def _clean(value: float | None) -> float:
    return min(value, _MOST) if value is not None and value > _LEAST else 0.0


def middle(values: Iterable[float]) -> float:
    """The median; 0 for no values."""
    found = list(values)
    return median(found) if found else 0.0
