"""The parts of torch's data parallelism that depend on devices."""

import functools
import importlib
import os
from typing import Any

from . import fsdp, nccl
from .devices import devices
from .not_emulated import NotEmulated

torch: Any = importlib.import_module("torch")

_BatchNorm = torch.nn.modules.batchnorm._BatchNorm


def apply() -> None:
    ddp = torch.nn.parallel.DistributedDataParallel
    ddp.__init__ = _ddp_init(ddp.__init__)
    ddp._passing_sync_batchnorm_handle = lambda _self, _module: None  # the original only refuses SyncBatchNorm on CPUs
    torch.nn.DataParallel.__init__ = _refuse_data_parallel
    if torch.distributed.is_available():
        torch.nn.SyncBatchNorm.forward = _sync_batch_norm
        for module in (torch.distributed, torch.distributed.distributed_c10d):
            for name, wrap in (("init_process_group", _init_group), ("new_group", _init_group), ("barrier", _barrier)):
                setattr(module, name, wrap(getattr(module, name)))
        nccl.apply()
        fsdp.apply()
        if hasattr(torch.distributed, "DeviceMesh"):  # since torch 2.2
            mesh = torch.distributed.DeviceMesh
            mesh.__init__ = _mesh_init(mesh.__init__)
    torch.compile = _compile(torch.compile)


def _ddp_init(original: Any) -> Any:
    @functools.wraps(original)
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *more: Any, **named: Any
    ) -> None:
        if device_ids is not None and len(device_ids) == 1:
            devices.resolve(device_ids[0])
            device_ids = None
        if output_device is not None:
            devices.resolve(output_device)
        original(self, module, device_ids, None, *more, **named)

    return init


def _mesh_init(original: Any) -> Any:
    """FSDP2 shards the tensors on the devices of a mesh."""

    @functools.wraps(original)
    def init(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        original(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    return init


def _refuse_data_parallel(self: Any, *_args: Any, **_kwargs: Any) -> None:
    raise NotEmulated("torch.nn.DataParallel", "use DistributedDataParallel, with a worker for each GPU")


def _init_group(original: Any) -> Any:
    """Omits the device to bind to, and replaces NCCL by a backend for CPUs."""

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device_id") is not None:
            devices.resolve(kwargs.pop("device_id"))
        return nccl.start(original, args, kwargs)

    return init


def _barrier(original: Any) -> Any:
    @functools.wraps(original)
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, **more: Any) -> Any:
        for device in device_ids or ():
            devices.resolve(device)
        return original(group, async_op, **more)

    return barrier


def _compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile_(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("disable") or os.environ.get("TORCHDYNAMO_DISABLE") == "1":
            return original(model, *args, **kwargs)
        advice = "to run the model without it, add environment: {TORCHDYNAMO_DISABLE: '1'} to the job file"
        if isinstance(model, torch.nn.Module):
            raise NotEmulated("torch.compile", advice)
        # A module may decorate functions that are never called.
        return functools.partial(_refuse_call, advice)

    return compile_


def _refuse_call(advice: str, *_args: Any, **_kwargs: Any) -> Any:
    raise NotEmulated("torch.compile", advice)


def _sync_batch_norm(self: Any, input: Any) -> Any:
    """torch's implementation needs GPUs. Two exchanges in each direction: the mean, then the squared differences."""
    dist = torch.distributed
    group = self.process_group or (dist.group.WORLD if dist.is_initialized() else None)
    if not self.training or group is None or dist.get_world_size(group) == 1:
        return _BatchNorm.forward(self, input)
    self._check_input_dim(input)
    values = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    dims = [dim for dim in range(values.dim()) if dim != 1]
    shape = [1, -1] + [1] * (values.dim() - 2)
    number = values.numel() // values.size(1)
    sums = _all_reduce(torch.cat([values.sum(dims), values.new_full((1,), float(number))]), group)
    count = sums[-1].detach()
    mean = sums[:-1] / count
    centred = values - mean.view(shape)
    variance = _all_reduce((centred * centred).sum(dims), group) / count
    if self.track_running_stats:
        _update_running_stats(self, mean.detach(), variance.detach() * (count / (count - 1)))
    result = centred * torch.rsqrt(variance + self.eps).view(shape)
    if self.affine:
        result = result * self.weight.view(shape) + self.bias.view(shape)
    return result.to(input.dtype)


class _Sum(torch.autograd.Function):  # type: ignore[misc]
    """The sum over the ranks; its gradient is one too."""

    @staticmethod
    def forward(ctx: Any, values: Any, group: Any) -> Any:
        ctx.group = group
        values = values.clone()
        torch.distributed.all_reduce(values, group=group)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return _Sum.apply(gradient.contiguous(), ctx.group), None


def _all_reduce(values: Any, group: Any) -> Any:
    return _Sum.apply(values, group)


def _update_running_stats(norm: Any, mean: Any, variance: Any) -> None:
    norm.num_batches_tracked.add_(1)
    part = norm.momentum if norm.momentum is not None else 1.0 / norm.num_batches_tracked.item()
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), part)
    norm.running_var.lerp_(variance.to(norm.running_var.dtype), part)
