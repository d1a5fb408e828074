"""Fusion buffers: contiguous memory that averages several gradients in one operation.

Wrapping the model assigns each gradient a place in a buffer. The backward pass copies each gradient to its place as
soon as it is computed. When a buffer has its last gradient, it is averaged at once, while the pass continues. The
buffer's name (step, index) identifies it, so the ranks may complete their buffers in different orders. At the end of
the pass, missing gradients are sent as zeros, and every gradient is the average over the ranks. ``parameter.grad`` is a
view of the buffer until the next pass.

After the gradients a buffer has one number for each of them: 1 if this rank has the gradient, else 0. An average of 0
means that no rank used the parameter: it then has no gradient on any rank.
"""

import importlib
import itertools
import sys
import weakref
from types import FrameType
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from .. import torch_backend

torch: Any = importlib.import_module("torch")

_BACKWARD = torch.autograd.function.BackwardCFunction.apply.__code__
_models = itertools.count()  # of wrapped models; all ranks wrap the same ones in the same order


def batches(tensors: Iterable[Any], most_bytes: int) -> List[List[int]]:
    """Divide tensors into batches, each a list of places: of one type and device, in order, of similar sizes.

    Each batch has at most ``most_bytes``, unless it is one tensor. Batches are sorted by the place of their last
    tensor.
    """
    tensors = list(tensors)
    total: Dict[Tuple[Any, Any], int] = {}
    for tensor in tensors:
        total[_kind(tensor)] = total.get(_kind(tensor), 0) + _bytes(tensor)
    share = {kind: size / max(1, -(-size // most_bytes)) for kind, size in total.items()}
    complete: List[List[int]] = []
    filling: Dict[Tuple[Any, Any], Tuple[List[int], int]] = {}
    for place, tensor in enumerate(tensors):
        kind = _kind(tensor)
        batch, size = filling.pop(kind, ([], 0))
        if batch and size + _bytes(tensor) > most_bytes:
            complete.append(batch)
            batch, size = [], 0
        batch.append(place)
        size += _bytes(tensor)
        if size >= share[kind]:
            complete.append(batch)
        else:
            filling[kind] = (batch, size)
    return complete + [batch for batch, _ in filling.values()]


def _kind(tensor: Any) -> Tuple[Any, Any]:
    return tensor.dtype, tensor.device


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


class Place:
    """The place of a parameter's gradient in its buffer."""

    def __init__(self, name: str, parameter: Any, memory: Any) -> None:
        self.name = name
        self.parameter = parameter
        self.view = _shaped_as(parameter, memory)
        self.arrived = False

    def fill(self) -> bool:
        """Move the gradient, if any, into the buffer; return whether there is one."""
        gradient = self.parameter.grad
        if gradient is None:
            return False
        if gradient.is_sparse:
            raise RuntimeError(f"smddp: the gradient of {self.name} is sparse, which is not supported: make it dense")
        if gradient.data_ptr() != self.view.data_ptr():
            self.view.copy_(gradient)
            self.parameter.grad = self.view
        return True


def _shaped_as(parameter: Any, memory: Any) -> Any:
    """A view of the memory with the parameter's strides, which are faster for optimizers, if they have no gaps."""
    forms = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
    if any(parameter.is_contiguous(memory_format=form) for form in forms):
        return memory.as_strided(parameter.size(), parameter.stride(), memory.storage_offset())
    return memory.view(parameter.size())


class Buffer:
    """The gradients of some parameters of one type and device."""

    def __init__(self, named: Sequence[Tuple[str, Any]]) -> None:
        parameters = [parameter for _, parameter in named]
        sizes = [parameter.numel() for parameter in parameters]
        like = parameters[0]
        self._memory = torch.zeros(sum(sizes) + len(sizes), dtype=like.dtype, device=like.device)
        *parts, present = self._memory.split([*sizes, len(sizes)])
        self._present = present.real
        self.places = [Place(name, parameter, part) for (name, parameter), part in zip(named, parts)]
        self._missing = len(self.places)
        self._work: Optional[Any] = None

    @property
    def is_sent(self) -> bool:
        return self._work is not None

    def take(self, place: Place) -> bool:
        """Put a gradient in its place; return whether the buffer is complete."""
        if place.fill() and not place.arrived:
            place.arrived = True
            self._missing -= 1
        return self._missing == 0

    def send(self, lane: str, step: int, index: int, buffers: int) -> None:
        self._present.fill_(1)
        for number, place in enumerate(self.places):
            if not place.arrived and not place.fill():
                place.view.zero_()
                self._present[number] = 0
        backend = _backend(self._memory.device)
        real = torch.view_as_real(self._memory).view(-1) if self._memory.is_complex() else self._memory
        self._work = torch_backend.adapter().average_named(backend, real, lane, step, index, buffers)

    def receive(self) -> None:
        """Wait for the averages and prepare the buffer for the next step."""
        assert self._work is not None  # noqa: S101 (every buffer was sent)
        self._work.wait()
        absent = [number for number, place in enumerate(self.places) if place.parameter.grad is None]
        for number in absent:
            if self._present[number] > 0:
                self.places[number].parameter.grad = self.places[number].view
        for place in self.places:
            place.arrived = False
        self._missing, self._work = len(self.places), None


class Exchange:
    """Averages the buffers of a model in each step."""

    def __init__(self, named: Sequence[Tuple[str, Any]], most_bytes: int) -> None:
        backwards = list(reversed(named))
        groups = batches([parameter for _, parameter in backwards], most_bytes)
        self.buffers = [Buffer([backwards[place] for place in group]) for group in groups]
        self._lane = f"gradients of model {next(_models)}"
        self._world = weakref.ref(_world())
        self._step = 0
        self._under_way = False
        self._is_expected = False  # a pass after a forward pass that reduces; no gradient of it has arrived
        self._recomputations = 0  # in which the last forward pass ran
        self._accumulators = [
            self._watch_parameter(index, place) for index, buffer in enumerate(self.buffers) for place in buffer.places
        ]

    def expect(self, outputs: List[Any]) -> None:
        """Average the gradients of the next backward pass, and of every pass that begins at one of these tensors.

        A hook of an output marks the beginning of the whole pass: a parameter's hook may run in a recomputed part,
        which is a separate pass and ends earlier. In a pass that no output begins, such as that of a loss which the
        module keeps, the first gradient marks the beginning.
        """
        for output in outputs:
            output.register_hook(self._begin)
        self._is_expected, self._recomputations = True, _recomputations()

    def skip_next_pass(self) -> None:
        """Do not average the gradients of the next backward pass, unless an output of an earlier one begins it."""
        self._is_expected = False

    def require_idle(self) -> None:
        """Raises RuntimeError after a failed pass: some ranks may have its averages and others not."""
        if self._under_way:
            raise RuntimeError(
                "smddp: the last backward() of this model raised an error before all gradients were averaged, "
                "so the ranks may differ: end the job and resume from a checkpoint"
            )

    def _watch_parameter(self, index: int, place: Place) -> Any:
        with torch.enable_grad():
            accumulator = place.parameter.expand_as(place.parameter).grad_fn.next_functions[0][0]
        own = weakref.ref(self)  # the model may be wrapped again; hooks of a deleted wrapper have no effect

        def arrived(*_: Any) -> None:
            exchange = own()
            if exchange is not None:
                exchange._take(index, place)

        accumulator.register_hook(arrived)
        return accumulator

    def _begin(self, *_: Any) -> None:
        if self._under_way:
            return
        world = _world()
        if world is None or world is not self._world():
            raise RuntimeError(
                "smddp: the model was wrapped with a process group that no longer exists: wrap model.module again"
            )
        self._under_way = True
        torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _take(self, index: int, place: Place) -> None:
        if self._is_expected:
            if not self._under_way:
                self._require_whole_pass(place)
                self._begin()
            self._is_expected = False
        if not self._under_way:
            return
        buffer = self.buffers[index]
        if buffer.is_sent:
            raise RuntimeError(
                f"smddp: one backward pass gave a second gradient of {place.name} after the first was sent. "
                "For a parameter that several checkpointed parts use, call checkpoint(..., use_reentrant=False)."
            )
        with torch.no_grad():
            if buffer.take(place):
                self._send(index)

    def _require_whole_pass(self, place: Place) -> None:
        """Raises RuntimeError if a gradient that begins a pass is in a recomputed part, which is only a part of it."""
        if _recomputations() > self._recomputations:
            raise RuntimeError(
                f"smddp: the loss depends on no tensor that forward() returned, and the gradient of {place.name} is in "
                "a recomputed part, so the pass cannot be averaged: return the loss from forward(), or call "
                "checkpoint(..., use_reentrant=False)"
            )

    def _send(self, index: int) -> None:
        self.buffers[index].send(self._lane, self._step, index, len(self.buffers))

    def _finish(self) -> None:
        """At the end of the pass, on the thread that called backward()."""
        with torch.no_grad():
            for index, buffer in enumerate(self.buffers):
                if not buffer.is_sent:
                    self._send(index)
            for buffer in self.buffers:
                buffer.receive()
        self._step += 1
        self._under_way = False


def _recomputations() -> int:
    """In how many backward functions in Python this thread is: a reentrant checkpoint recomputes its part in one."""
    count = 0
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        count += frame.f_code is _BACKWARD
        frame = frame.f_back
    return count


def _world() -> Any:
    return torch.distributed.group.WORLD


def _backend(device: Any) -> Any:
    """The backend, without the wrapper that TORCH_DISTRIBUTED_DEBUG=DETAIL adds."""
    backend = _world()._get_backend(device)
    return getattr(backend, "wrapped_pg", backend)
