"""A verdict as sentences and as rows of figures."""

from __future__ import annotations

from smdp_launch.diagnosis.blame import INPUT
from smdp_launch.diagnosis.loading import Loading
from smdp_launch.diagnosis.verdict import LEAST, Verdict, WorkerVerdict
from smdp_launch.units import count, listed, size

#: What each cause takes time for.
_REASONS = {
    "source": "the loader waits for the storage",
    "decoding": "the loader works on the samples, and no core is free for more of it",
    "workers": "too few loader workers prepare batches while the step computes",
    "exchanges": "all workers wait for the network or the summation of gradients",
    "checkpoints": "the script saves checkpoints, and the step waits",
    "logging": "the script writes logs, and the step waits",
    "evaluation": "the script evaluates the model",
}
PHASE_NAMES = {
    "input": "input",
    "copy": "copies to the GPU",
    "forward": "the forward pass",
    "backward": "the backward pass",
    "optimizer": "the optimizer",
    "other": "code outside the measured phases",
}
_LATE = 3
_MOST_RANKS = 4


def sentence(verdict: Verdict) -> str:
    """The verdict in one sentence."""
    if verdict.hang is not None:
        return verdict.hang.sentence
    if not verdict.is_of_speed:
        return "The cause is unknown: there is not enough data."
    time = f"{percent(verdict.share)} of the time"
    if verdict.cause == "computing":
        rest = {cause: share for cause, share in verdict.shares.items() if cause != "computing"}
        most = max(rest, key=lambda cause: rest[cause])
        tail = f"no other cause takes {percent(LEAST)}"
        return f"Bound by computing: {time}; {tail} (next: {most}, {percent(rest[most])})."
    amount = f"{100 * (verdict.gain - 1):.0f} % more" if verdict.gain < 10 else f"{verdict.gain:.0f} times the"
    gain = f"Without it, at most {amount} throughput"
    if verdict.cause in ("slow_worker", "slow_host") and verdict.spends is not None:
        more = (
            "spends more time on" if verdict.cause == "slow_host" or len(verdict.ranks) == 1 else "spend more time on"
        )
        return (
            f"Bound by {who(verdict)}: the other workers wait {time} for it, since it {more} {_spent(verdict)}. {gain}."
        )
    return f"Bound by {verdict.cause}: {time}, {_REASONS[verdict.cause]}. {gain}."


def _spent(verdict: Verdict) -> str:
    name = PHASE_NAMES[verdict.spends or "other"]
    return f"{name} ({verdict.loading.cause})" if verdict.spends == "input" and verdict.loading is not None else name


def who(verdict: Verdict) -> str:
    """The slow host or ranks, such as ``slow worker rank 2 on algo-2``."""
    if verdict.cause == "slow_host":
        return f"slow host {verdict.host}"
    ranks = [str(rank) for rank in verdict.ranks[:_MOST_RANKS]]
    more = len(verdict.ranks) - len(ranks)
    names = listed([*ranks, *([f"{more} more"] if more else [])])
    return f"slow worker rank {names}" + (f" on {verdict.host}" if len(verdict.ranks) == 1 else "")


def figures(verdict: Verdict) -> list[tuple[str, str]]:
    """The figures behind the verdict: names and values."""
    rows: list[tuple[str, str]] = []
    if verdict.step_s is not None:
        read = f"{verdict.seconds_read:.0f} s and {count(verdict.steps, 'step')} read"
        read += " before the hang" if verdict.hang is not None else ""
        rows.append(("step", f"{milliseconds(verdict.step_s)} ({read}, after {verdict.warm_up:.0f} s of warm-up)"))
    if verdict.is_of_speed and verdict.cause != "computing":
        rows.append(("blamed", f"{milliseconds(verdict.seconds)} of each step, {percent(verdict.share)}"))
    if verdict.shares:
        largest = sorted(verdict.shares.items(), key=lambda item: -item[1])
        rows.append(("time", ", ".join(f"{cause} {percent(share)}" for cause, share in largest if share >= 0.005)))
    if verdict.is_of_speed:
        rows.append(("sure", _sure(verdict)))
    if verdict.slowest is not None and verdict.cause in ("slow_worker", "slow_host"):
        slow = verdict.slowest
        own = f"{milliseconds(slow.own_s)} of its own each step, the others {milliseconds(slow.others_s)}"
        rows.append(("slowest", f"rank {slow.ranks[0]}: {own}"))
    if verdict.loading is not None and (verdict.cause in INPUT or verdict.spends == "input"):
        rows += _loading(verdict.loading)
    rows += _machines(verdict)
    if verdict.late and verdict.cause in ("slow_worker", "slow_host", "exchanges"):
        late = list(verdict.late.items())[:_LATE]
        rows.append(("waited for", ", ".join(f"rank {rank} {seconds:.1f} s" for rank, seconds in late)))
    if verdict.bytes_s > 0:
        rows.append(("data read", f"{size(int(verdict.bytes_s))}/s by all workers"))
    return rows


def _sure(verdict: Verdict) -> str:
    without = f", {count(len(verdict.silent), 'worker')} missing" if verdict.silent else ""
    return f"{verdict.sure} ({count(verdict.windows, 'interval')} of each worker{without})"


def hedged(verdict: Verdict) -> str:
    """The sentence, with a word on how sure it is where no figures stand beside it."""
    if not verdict.is_of_speed or verdict.sure != "low":
        return sentence(verdict)
    return f"{sentence(verdict)} This is not sure: `smdp-launch diagnose` shows the figures."


def _loading(load: Loading) -> list[tuple[str, str]]:
    rows = []
    if load.batch_s is not None:
        parts = (
            f"on a CPU {milliseconds(load.cpu_s)}",
            f"waiting for a CPU {milliseconds(load.queued_s)}",
            f"blocked {milliseconds(load.blocked_s)}",
        )
        rows.append(("a batch", f"{milliseconds(load.batch_s)} of the loader: {', '.join(parts)}"))
    if load.workers is not None:
        none = "0: the training thread loads in next()" if load.workers == 0 else str(load.workers)
        needed = f"; {load.needed} would keep up with this step" if load.needed is not None else ""
        rows.append(("loader workers", f"{none} for each worker{needed}"))
    if load.supply is not None and load.demand is not None:
        rows.append(("batches/s", f"{load.supply:.3g} loaded at most, {load.demand:.3g} used without waiting"))
    return rows


def _machines(verdict: Verdict) -> list[tuple[str, str]]:
    """The busiest host: its cores and its GPUs."""
    known = [one for one in verdict.hosts.values() if one.cores and one.busy is not None]
    if not known:
        return []
    most = max(known, key=lambda one: ((one.busy or 0.0) / (one.cores or 1.0), one.name))
    own = most.values.get("workers_cpu_s", 0.0) / most.seconds if most.seconds > 0 else 0.0
    rows = [("cores", f"{most.busy:.1f} of {most.cores:.0f} busy on {most.name}, {own:.1f} of them by its workers")]
    use = [one.levels["gpu_use"] for one in verdict.hosts.values() if "gpu_use" in one.levels]
    if use:
        least, greatest = percent(min(use)), percent(max(use))
        rows.append(("GPU use", least if least == greatest else f"{least} to {greatest} by host"))
    return rows


def extremes(workers: tuple[WorkerVerdict, ...], most: int = 8) -> list[WorkerVerdict]:
    """All workers by rank; of many, those with the longest and the shortest own time."""
    if len(workers) <= most:
        return list(workers)
    ordered = sorted(workers, key=lambda one: (-one.own_s, one.rank))
    half = most // 2
    return sorted(ordered[:half] + ordered[-half:], key=lambda one: (-one.own_s, one.rank))


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def milliseconds(seconds: float) -> str:
    """Such as ``12.3 ms``, ``2.5 s``."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
