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

    Register all parameters before, in the same order on all ranks, and do not replace them. Rank 0's values are copied
    to all ranks. ``parameter.grad`` is a view of a fusion buffer, which the next backward pass overwrites: clone a
    gradient to keep it. A gradient that a rank does not have counts as zero; a parameter that no rank uses has no
    gradient.

    Args:
        device_ids: the device of a module on one GPU; None or empty for any other module.
        output_device: None or that device.
        broadcast_buffers: copy rank 0's buffers to all ranks before a forward pass whose predecessor was averaged.
        process_group: None or ``group.WORLD``.
        bucket_cap_mb: the maximum size of a fusion buffer in MiB, unless it has one gradient; None is 25. A buffer has
            gradients of one type, which are summed in that type.

    Raises:
        RuntimeError: there is no process group of the backend ``smddp``, the ranks' modules differ, or no parameter is
            trained.
        ValueError: an argument is invalid.
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
        trained = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
        require_same([*describe(module), f"bucket_cap_mb {bucket_cap_mb}", f"broadcast_buffers {broadcast_buffers}"])
        if not trained:
            raise RuntimeError("smddp: no parameter of the module is trained, so it needs no DistributedDataParallel")
        broadcast_all([*module.parameters(), *module.buffers()], self.bucket_bytes_cap)
        self._exchange: Optional[Exchange] = Exchange(trained, self.bucket_bytes_cap)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        reduces = torch.is_grad_enabled() and self.require_backward_grad_sync
        exchange = self._own_exchange() if torch.is_grad_enabled() else None
        if not _is_in_backward():  # in a backward pass a checkpoint only recomputes
            self._synchronize(exchange, reduces)
        output = self.module(*_moved(inputs, self.output_device), **_moved(kwargs, self.output_device))
        if exchange is not None and reduces:
            exchange.expect([tensor for tensor in _tensors(output) if tensor.grad_fn is not None])
        elif exchange is not None:
            exchange.skip_next_pass()
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate the gradients of passes in this context on this rank; the next pass outside averages the sum."""
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
            raise RuntimeError("smddp: a copy of a wrapped model cannot be trained: wrap its .module")
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
    names = dist.get_backend().split(",")  # one name, or one for each device as in cpu:smddp,cuda:smddp
    if any(name.split(":")[-1] != torch_backend.BACKEND for name in names):
        raise RuntimeError(
            f"{PACKAGE}.parallel.DistributedDataParallel needs the backend smddp, the process group has "
            f"{dist.get_backend()}: use torch.nn.parallel.DistributedDataParallel, which supports any"
        )


def _devices(module: Any, device_ids: Optional[Sequence[Any]], output_device: Any) -> List[Any]:
    of_module = sorted({str(parameter.device) for parameter in module.parameters()})
    devices = [_device(device) for device in device_ids or ()]
    if devices and [str(device) for device in devices] != of_module:
        raise ValueError(
            f"device_ids must be the GPU of the whole module: found {devices}, the module is on "
            f"{', '.join(of_module)}; omit it for a module on CPUs or on several devices"
        )
    if output_device is not None and [_device(output_device)] != devices:
        raise ValueError(f"output_device must be None or device_ids[0], found {output_device}")
    return devices


def _device(device: Any) -> Any:
    return host_device(torch.device("cuda", device) if isinstance(device, int) else torch.device(device))


def _is_in_backward() -> bool:
    current = getattr(torch._C, "_current_graph_task_id", None)  # since torch 2.1
    return current is not None and current() != -1


def _moved(value: Any, device: Any) -> Any:
    """The value with its tensors on the device; unchanged if the device is None."""
    if device is None:
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(item, device) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device) for item in value)
    if isinstance(value, dict):
        return type(value)((key, _moved(item, device)) for key, item in value.items())
    return value


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _tensors([getattr(value, field.name) for field in dataclasses.fields(value)])
