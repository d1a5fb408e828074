"""The GPU of a rank, or its emulation on the CPU, which runs the same calls without a GPU.

The emulation shows that a program works from its first line to its last. Its times and bytes say nothing about a GPU.
"""

import os
import statistics
from typing import Any, Callable, List

import torch


def this_gpu(kind: str, *, every_rank_its_own: bool = False) -> torch.device:
    """The GPU of this rank; ranks share GPUs where a host has fewer than ranks.

    Args:
        every_rank_its_own: the simulated hosts have different GPUs, too, if there are enough.
    """
    if kind == "emulated":
        from smdp_engine import cuda_on_cpu

        torch.set_num_threads(1)
        cuda_on_cpu.install()
    number = int(os.environ.get("RANK" if every_rank_its_own else "LOCAL_RANK", "0"))
    device = torch.device("cuda", number % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def exact_arithmetic() -> None:
    """The same operations give the same bits in every run, and float32 is computed in float32."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def timed_ms(work: Callable[[], Any], times: int) -> List[float]:
    """The milliseconds of each call on the current stream, by the device's clock; after two calls to warm up."""
    took = []
    for turn in range(-2, times):
        start, end = event(), event()
        start.record()
        work()
        end.record()
        end.synchronize()
        if turn >= 0:
            took.append(start.elapsed_time(end))
    return took


def event() -> Any:
    return torch.cuda.Event(enable_timing=True)


def median(values: List[float]) -> float:
    return statistics.median(values)
