"""The steady part of a run, which mean rates and the diagnosis read: after the warm-up and before the end."""

from __future__ import annotations

from dataclasses import dataclass

from smdp_launch.run_metrics.run import RunMetrics
from smdp_launch.run_metrics.series import Window

#: Numbers outside are no seconds, bytes or counts of a job. The limits keep sums and quotients finite.
LEAST, MOST = 1e-9, 1e18
#: So many windows must remain before the last one, in which the script also ends, is left out.
_ENOUGH = 4


@dataclass(frozen=True)
class Steady:
    """Args:
    begin: seconds since 1970.
    windows: of each rank with a step, by rank.
    """

    begin: float
    end: float
    windows: dict[int, list[Window]]


def steady(metrics: RunMetrics) -> Steady | None:
    """None without a step. The warm-up lasts until the end of the first window with a step, on all ranks; windows after
    the last step are left out."""
    chosen = {rank: _trained(one.timing.windows) for rank, one in metrics.ranks.items()}
    chosen = {rank: windows for rank, windows in chosen.items() if windows}
    if not chosen:
        return None
    begin = max(windows[0].end if len(windows) > 2 else windows[0].begin for windows in chosen.values())
    end = min(windows[-2].end if len(windows) > _ENOUGH else windows[-1].end for windows in chosen.values())
    return Steady(begin, end, {rank: within(windows, begin, end) for rank, windows in sorted(chosen.items())})


def within(windows: list[Window], begin: float, end: float) -> list[Window]:
    """The windows with their middle in the period; all if there is none, since the ranks' windows are not aligned."""
    return [one for one in windows if begin <= (one.begin + one.end) / 2 <= end] or windows


def clean(value: float | None) -> float:
    return min(value, MOST) if value is not None and value > LEAST else 0.0


def is_long(window: Window) -> bool:
    """Whether its length is that of a window."""
    return LEAST < window.seconds < MOST


def has_step(window: Window) -> bool:
    """An optimizer step, or a batch."""
    return clean(window.values.get("steps")) > 0 or clean(window.values.get("batches")) > 0


def _trained(windows: list[Window]) -> list[Window]:
    """From the first window with a step to the last one."""
    with_steps = [index for index, one in enumerate(windows) if has_step(one) and is_long(one)]
    if not with_steps:
        return []
    return [one for one in windows[with_steps[0] : with_steps[-1] + 1] if is_long(one)]
