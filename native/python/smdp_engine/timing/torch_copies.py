"""Measures the copies of tensors from the host to a GPU: Tensor.to and Tensor.cuda.

torch.compile, torch.jit and torch.fx know these methods by their names and do not call the functions below. Subclasses
and modes that handle the methods get the functions below, because torch looks for them in torch.Tensor in each call. A
process without a GPU keeps torch's own methods.
"""

import functools
import importlib
import os
from pathlib import Path
from typing import Any, Callable

from .clock import COPY, Clock

torch: Any = importlib.import_module("torch")


def install(clock: Clock, prepare: Callable[[Any], Any]) -> None:
    """``prepare`` is applied to the methods that replace torch's."""
    # Not torch.cuda.is_available(): it may initialize CUDA, and processes that the script forks could not use it then.
    if Path("/dev/nvidiactl").exists() or os.environ.get("SMDP_CUDA_ON_CPU") == "1":
        replace_methods(clock, prepare)


def replace_methods(clock: Clock, prepare: Callable[[Any], Any]) -> None:
    tensor = torch.Tensor
    tensor.to = prepare(_measured(clock, tensor.to, to_gpu))
    tensor.cuda = prepare(_measured(clock, tensor.cuda, lambda _args, _kwargs: True))


def to_gpu(args: Any, kwargs: Any) -> bool:
    """Whether these arguments of Tensor.to name a GPU."""
    target = args[0] if args else kwargs.get("device", kwargs.get("other"))
    if isinstance(target, str):
        return target.startswith("cuda")
    if isinstance(target, torch.device):
        return bool(target.type == "cuda")
    if isinstance(target, torch.Tensor):
        return bool(target.is_cuda)
    return isinstance(target, int)


def _measured(clock: Clock, function: Any, is_copy: Callable[[Any, Any], bool]) -> Any:
    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_copy(args, kwargs) or self.is_cuda:
            return function(self, *args, **kwargs)
        mark = clock.enter(COPY)
        try:
            return function(self, *args, **kwargs)
        finally:
            clock.leave(mark)

    return method
