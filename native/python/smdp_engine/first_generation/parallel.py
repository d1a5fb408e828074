"""The first generation's ``DistributedDataParallel``: gradients are averaged in fusion buffers (fusion.py)."""

import contextlib
import dataclasses
import importlib
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from .. import torch_backend
from ..cuda_on_cpu import host_device
from .agreement import broadcast_all, describe, require_same
from .deprecation import PACKAGE, deprecated
from .distributed import require_world
from .fusion import Exchange

torch: Any = importlib.import_module("torch")

_DEFAULT_BUCKET_CAP_MB = 25


class DistributedDataParallel(torch.nn.Module):  # type: ignore[misc]
    """Wraps ``module``, the same on all ranks; after ``loss.backward()`` every gradient is the ranks' average.

    All parameters are registered before, in the same order on all ranks, and stay as they are: rank 0's values are
    copied to all. ``parameter.grad`` is a view of a fusion buffer that the next backward pass writes to: clone what is
    to be kept. A parameter that a rank did not use counts as zero there; one that no rank used keeps no gradient.

    Args:
        device_ids: the one device of a module on one GPU; None or empty for any other module.
        output_device: None or that device.
        broadcast_buffers: copy rank 0's buffers to all ranks before the forward pass that follows a reduced one.
        process_group: None or ``group.WORLD``.
        bucket_cap_mb: the most that a fusion buffer holds, in MiB, unless it is one gradient; None is 25. Each holds
            gradients of one type, which are summed in that type.

    Raises:
        RuntimeError: there is no process group of the backend ``smddp``, the ranks' modules differ, or nothing is
            trained.
        ValueError: an argument.
    """

    @deprecated("parallel.DistributedDataParallel", "torch.nn.parallel.DistributedDataParallel with the backend smddp")
    def __init__(
        self,
        module: Any,
        device_ids: Optional[Sequence[Any]] = None,
        output_device: Any = None,
        broadcast_buffers: bool = True,
        process_group: Any = None,
        bucket_cap_mb: Optional[float] = None,
    ) -> None:
        super().__init__()
        require_world(process_group, "parallel.DistributedDataParallel")
        _require_backend()
        self.module = module
        self.device_ids = _devices(module, device_ids, output_device)
        self.output_device = self.device_ids[0] if self.device_ids else None
        self.broadcast_buffers = broadcast_buffers
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True
        bucket_cap_mb = _DEFAULT_BUCKET_CAP_MB if bucket_cap_mb is None else bucket_cap_mb
        if bucket_cap_mb <= 0:
            raise ValueError(f"bucket_cap_mb must be above 0, found {bucket_cap_mb}")
        self.bucket_bytes_cap = int(bucket_cap_mb * 1024 * 1024)
        trained = [(name, one) for name, one in module.named_parameters() if one.requires_grad]
        require_same([*describe(module), f"bucket_cap_mb {bucket_cap_mb}", f"broadcast_buffers {broadcast_buffers}"])
        if not trained:
            raise RuntimeError("smddp: no parameter of the module is trained, so it needs no DistributedDataParallel")
        broadcast_all([*module.parameters(), *module.buffers()], self.bucket_bytes_cap)
        self._exchange: Optional[Exchange] = Exchange(trained, self.bucket_bytes_cap)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        reduces = torch.is_grad_enabled() and self.require_backward_grad_sync
        exchange = self._own_exchange() if torch.is_grad_enabled() else None
        if not _is_in_backward():  # there a checkpoint only computes again what was computed before
            self._synchronize(exchange, reduces)
        output = self.module(*_moved(inputs, self.output_device), **_moved(kwargs, self.output_device))
        if exchange is not None and reduces:
            exchange.expect([one for one in _tensors(output) if one.grad_fn is not None])
        elif exchange is not None:
            exchange.expect_nothing()
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Forward passes in here leave their gradients to this rank, where they add up until the next one outside."""
        before = self.require_backward_grad_sync
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_exchange": None}

    def _own_exchange(self) -> Exchange:
        if self._exchange is None:
            raise RuntimeError("smddp: this is a copy of a wrapped model, which cannot be trained: wrap its .module")
        return self._exchange

    def _synchronize(self, exchange: Optional[Exchange], reduces: bool) -> None:
        if exchange is not None:
            exchange.require_idle()
        if self.broadcast_buffers and self.require_forward_param_sync and self._exchange is not None:
            broadcast_all(self.module.buffers(), self.bucket_bytes_cap)
        self.require_forward_param_sync = reduces


def _require_backend() -> None:
    dist = torch.distributed
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(f"call {PACKAGE}.distributed.init_process_group() before you wrap a model")
    by_device = dist.get_backend().split(",")  # one name, or one for each device as in cpu:smddp,cuda:smddp
    if any(one.split(":")[-1] != torch_backend.BACKEND for one in by_device):
        raise RuntimeError(
            f"{PACKAGE}.parallel.DistributedDataParallel needs the backend smddp, the process group has "
            f"{dist.get_backend()}: torch.nn.parallel.DistributedDataParallel takes any"
        )


def _devices(module: Any, device_ids: Optional[Sequence[Any]], output_device: Any) -> List[Any]:
    here = sorted({str(one.device) for one in module.parameters()})
    given = [_device(one) for one in device_ids or ()]
    if given and [str(one) for one in given] != here:
        raise ValueError(
            f"device_ids is the one GPU that all of the module is on: found {given}, the module is on "
            f"{', '.join(here)}; leave it out for a module on CPUs or on several devices"
        )
    if output_device is not None and [_device(output_device)] != given:
        raise ValueError(f"output_device must be None or device_ids[0], found {output_device}")
    return given


def _device(given: Any) -> Any:
    return host_device(torch.device("cuda", given) if isinstance(given, int) else torch.device(given))


def _is_in_backward() -> bool:
    current = getattr(torch._C, "_current_graph_task_id", None)  # since torch 2.1
    return current is not None and current() != -1


def _moved(value: Any, device: Any) -> Any:
    """The value with its tensors on the device; as it is without one."""
    if device is None:
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(one, device) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(one, device) for one in value)
    if isinstance(value, dict):
        return type(value)((key, _moved(one, device)) for key, one in value.items())
    return value


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _tensors([getattr(value, field.name) for field in dataclasses.fields(value)])
