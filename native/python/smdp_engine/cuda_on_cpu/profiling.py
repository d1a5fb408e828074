"""Profilers record the CPU only; NVTX ranges and marks have no effect."""

import contextlib
import functools
import importlib
from typing import Any, Iterator


def apply() -> None:
    nvtx: Any = importlib.import_module("torch.cuda.nvtx")
    nvtx.range_push = nvtx.range_pop = nvtx.range_start = _zero
    nvtx.range_end = nvtx.mark = no_op
    nvtx.range = _range
    cuda: Any = importlib.import_module("torch.cuda.profiler")
    cuda.start = cuda.stop = cuda.init = no_op
    autograd: Any = importlib.import_module("torch.autograd.profiler")
    autograd.profile.__init__ = _without_cuda(autograd.profile.__init__)
    kineto: Any = importlib.import_module("torch.profiler.profiler")
    kineto._KinetoProfile.__init__ = _of_cpu(kineto._KinetoProfile.__init__, kineto.ProfilerActivity)


def no_op(*_args: Any, **_kwargs: Any) -> None:
    """Replaces functions without an effect on a CPU."""


def _zero(*_args: Any) -> int:
    return 0


@contextlib.contextmanager
def _range(msg: Any, *_args: Any, **_kwargs: Any) -> Iterator[None]:
    yield


def _without_cuda(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, enabled: bool = True, **settings: Any) -> None:
        if settings.get("use_device") == "cuda":
            settings["use_device"] = None
        settings.pop("use_cuda", None)
        original(self, enabled, **settings)

    return init


def _of_cpu(original: Any, kinds: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, *, activities: Any = None, **settings: Any) -> None:
        if activities is not None:
            activities = {kinds.CPU if activity == kinds.CUDA else activity for activity in activities}
        original(self, activities=activities, **settings)

    return init
