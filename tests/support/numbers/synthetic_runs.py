"""Runs of any size, made of the events that workers and hosts send."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta, timezone
from typing import Any

from smdp_launch.jobs.run import Run
from smdp_launch.jobs.status.description import description
from smdp_launch.run_metrics.run import RunMetrics

BEGAN = datetime(2026, 11, 21, tzinfo=timezone.utc)
_AT = BEGAN.timestamp()
NAME = "small-20261121000000-0000"
#: Shares of a step, which sum to 1.
SHARES = {"input": 0.31, "copy": 0.02, "forward": 0.15, "backward": 0.3, "optimizer": 0.05, "exchange": 0.12}


def timing(window: float, steps: float, samples: float, shares: dict[str, float]) -> dict[str, Any]:
    seconds = {f"{phase}_s": share * window for phase, share in shares.items()}
    seconds["other_s"] = (1 - sum(shares.values())) * window
    return {"window": window, "steps": steps, "samples": samples, **seconds}


def synthetic_metrics(hosts: int = 2, workers: int = 2, steps: int = 310, windows: int = 20) -> RunMetrics:
    """Steps of 0.1 s; the last rank waits longer for its input."""
    made, run, world = random.Random(0), RunMetrics(), hosts * workers
    length = steps * 0.1 / windows
    for host in range(hosts):
        ranks = list(range(host * workers, (host + 1) * workers))
        run.add("workers_started", {"world_size": world, "ranks": ranks}, f"algo-{host + 1}", None, _AT + 60)
    done = 0
    for index in range(1, windows + 1):
        at = _AT + 60 + index * length
        while done < steps * index // windows:
            done += 1
            loss = 2.0 * math.exp(-3 * done / steps) + made.random() * 0.1
            fields = {"step": done, "steps": steps, "loss": loss, "accuracy": 1 - loss / 3}
            run.add("step", fields, "algo-1", 0, _AT + 60 + done * 0.1)
        for rank in range(world):
            more = 0.2 if rank == world - 1 else 0.0
            shares = SHARES | {"input": SHARES["input"] + more, "exchange": SHARES["exchange"] - more / 2}
            fields = timing(length, steps / windows, 32 * steps / windows, shares | {"backward": 0.3 - more / 2})
            run.add("timing", fields, f"algo-{rank // workers + 1}", rank, at)
        for host in range(hosts):
            levels = {"cores": 96, "memory_used": 3e11, "memory_total": 1.2e12, "workers_memory": 2e11}
            gpus = {"gpus": 8, "gpu_use": 0.71, "gpu_memory_used": 2.4e11, "gpu_memory_total": 3.2e11}
            sums = {"cpu_s": length * (20 + 3 * made.random() + host), "disk_read": 1e6, "net_received": 1e8 * length}
            channel = {"channel_train_bytes": 3e8 * length, "channel_train_mode": "FastFile"}
            run.add("resources", {"window": length} | levels | gpus | sums | channel, f"algo-{host + 1}", None, at)
    return run


def synthetic_run(metrics: RunMetrics, hosts: int = 2, **changes: Any) -> Run:
    """A completed job on AWS with these events."""
    training = math.ceil((metrics.last or _AT) - _AT)
    statuses = [("Downloading", 0, 60), ("Training", 60, training), ("Completed", training, training)]
    answer: dict[str, Any] = {
        "TrainingJobName": NAME,
        "TrainingJobStatus": "Completed",
        "SecondaryStatus": "Completed",
        "CreationTime": BEGAN,
        "TrainingStartTime": BEGAN,
        "TrainingTimeInSeconds": training,
        "BillableTimeInSeconds": training,
        "ResourceConfig": {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": hosts, "VolumeSizeInGB": 30},
        "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints/"},
        "HyperParameters": {"lr": "0.1", "epochs": "3"},
        "AlgorithmSpecification": {"TrainingImage": "example/image:1", "TrainingInputMode": "File"},
        "SecondaryStatusTransitions": [
            {
                "Status": status,
                "StartTime": BEGAN + timedelta(seconds=first),
                "EndTime": BEGAN + timedelta(seconds=last),
                "StatusMessage": "",
            }
            for status, first, last in statuses
        ],
        **changes,
    }
    described = description(answer, BEGAN + timedelta(seconds=training))
    return Run("us-east-1", described, metrics, 32.77, answer)
