"""What to try first against a cause, for the settings of a job that its events show."""

from __future__ import annotations

import math
from collections.abc import Iterator

from smdp_launch.diagnosis.blame import INPUT
from smdp_launch.diagnosis.loading import Loading
from smdp_launch.diagnosis.verdict import Verdict

_SHARDS = "pack small files into shards of 100 MB or more, which are read in sequence"
_STOP = "stop the job if it still runs and does not continue: `smdp-launch stop`; `hang: {action: end}` ends such a job"
#: GPU use below this, with a job bound by computing, means that the GPU waits for the script.
_IDLE_GPU = 0.7


def advice(verdict: Verdict) -> list[str]:
    """Imperatives, the cheapest first; empty if nothing holds the job back."""
    cause = verdict.cause
    if verdict.hang is not None:
        stacks = f"read the stacks in the log: `smdp-launch logs --host {verdict.host} --grep hang`"
        return [stacks] if verdict.hang.is_of_ended_job else [stacks, _STOP]
    if verdict.spends == "input" and verdict.loading is not None:
        return [*_slow(verdict), *_input(verdict, verdict.loading.cause, verdict.loading)]
    if cause in INPUT and verdict.loading is not None:
        return list(_input(verdict, cause, verdict.loading))
    if cause in ("slow_worker", "slow_host"):
        return list(_slow(verdict))
    return list(_OTHERS[cause]) if cause in _OTHERS else list(_computing(verdict))


def _input(verdict: Verdict, cause: str, load: Loading) -> Iterator[str]:
    modes = {mode for host in verdict.hosts.values() for mode in host.modes.values()}
    if cause == "workers":
        yield from _more_workers(load)
        return
    if cause == "decoding":
        yield "decode and resize the samples once, before the training, and store the result"
        yield "use a faster decoder, or decode on the GPU (DALI, torchvision's decode_jpeg with device=)"
        yield "choose an instance type with more cores for each GPU: `smdp-launch catalog instances`"
        return
    if load.workers == 0:
        yield f"set num_workers={_number(load)} in the DataLoader, so that reads overlap with computing"
    elif load.workers is None and load.batch_s is not None:
        yield "read the data in a DataLoader with num_workers=2 or more, so that reads overlap with computing"
    elif load.workers is not None and load.needed is not None and load.needed > load.workers:
        yield (
            f"try num_workers={_number(load)} and prefetch_factor=4 in the DataLoader: blocked workers use no core, "
            "and this helps if single reads are slow but the storage can serve more of them"
        )
    if "FSxLustre" in modes:
        yield "increase the throughput of the FSx file system: `smdp-launch size` computes the smallest one"
        yield "load the data into the file system before the training: the first read of a file comes from S3"
    elif "EFS" in modes:
        yield "use FSx for Lustre or FastFile mode in place of EFS: `smdp-launch size` compares them"
    elif "Pipe" in modes:
        yield "use FastFile mode in place of Pipe: several loader workers can read from it"
    elif "File" in modes:
        yield "increase compute.volume_gb, or choose an instance type with local NVMe: File mode reads from its disk"
    else:
        yield "use File mode if the data fits the volume, or FSx for Lustre: `smdp-launch size` compares them"
    yield f"{_SHARDS}, and read them in large pieces"


def _more_workers(load: Loading) -> Iterator[str]:
    keeps_up = load.supply is not None and load.demand is not None and load.supply >= load.demand
    if load.workers and keeps_up:
        yield "set persistent_workers=True in the DataLoader: the workers keep up, but they start anew in each epoch"
        yield "set pin_memory=True and prefetch_factor=4, so that finished batches are ready when the step needs them"
        return
    yield f"set num_workers={_number(load)} in the DataLoader"
    yield "set persistent_workers=True and prefetch_factor=4 with it"


def _number(load: Loading) -> int:
    """Loader workers to try: those that keep up with the step, at most doubled from what there are, at least 2."""
    if load.needed is None:
        return max(2, 2 * (load.workers or 0))
    return max(2, min(load.needed, max(8, 2 * (load.workers or 0))))


def _slow(verdict: Verdict) -> Iterator[str]:
    if verdict.cause == "slow_host":
        yield f"launch again: {verdict.host} may be a slow machine; compare its cores and GPU use with the other hosts"
    ranks = ", ".join(str(rank) for rank in verdict.ranks[:4])
    if verdict.spends == "input":
        yield f"compare the input of rank {ranks} with the others': shards of equal size and number for each worker"
    elif verdict.spends == "other":
        yield f"find what the script does on rank {ranks} only, outside of the training step"
    else:
        yield f"give each worker the same work: compare the batches of rank {ranks}, such as their sequence lengths"
    yield "use `smdp-launch logs --rank N` for its warnings, and the timeline of docs/how-to/slow-runs.md"


_OTHERS = {
    "exchanges": (
        "increase the batch of each worker, or accumulate gradients with no_sync(): fewer exchanges for each sample",
        "exchange in bf16 or fp16 with a communication hook of DDP: half the bytes",
        "try bucket_cap_mb=50 to 100 in DistributedDataParallel: fewer, larger exchanges",
        "use fewer, larger hosts: `smdp-launch scale` models it",
    ),
    "checkpoints": (
        "save less often, or only what changed",
        "save asynchronously, with torch.distributed.checkpoint.async_save or a thread that writes a copy in memory",
    ),
    "logging": (
        "log each 50 steps instead of each step, and only on rank 0",
        "collect values on the GPU and call .item() only when they are written",
    ),
    "evaluation": (
        "evaluate less often, or on a part of the data",
        "divide the evaluation data among all workers",
    ),
}


def _computing(verdict: Verdict) -> Iterator[str]:
    use = [one.levels["gpu_use"] for one in verdict.hosts.values() if "gpu_use" in one.levels]
    if use and math.fsum(use) / len(use) < _IDLE_GPU:
        yield "increase the batch, or use torch.compile: the GPUs are not busy although the step computes"
        yield "train in mixed precision (amp)"
