"""Fusion buffers: flat memory in which gradients travel together, and the steps in which they are averaged.

A backward pass hands over each gradient as it is done. Its place in a buffer was fixed when the model was wrapped; the
buffer whose last gradient arrives is averaged at once, while the pass goes on, under its name (step, index), so the
ranks may fill theirs in different orders. When the pass ends, what is missing is sent as zeros, and every gradient is
the average over the ranks. It stays where it is: ``parameter.grad`` is a view of the buffer until the next pass.

Behind the gradients a buffer has one number for each, 1 where this rank has the gradient and 0 where not. Their
averages tell which parameters no rank has used: those keep no gradient, on all ranks alike.
"""

import importlib
import itertools
import weakref
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

from .. import torch_backend

torch: Any = importlib.import_module("torch")

_models = itertools.count()  # that were wrapped; the same on all ranks, since wrapping is a call of all


def batches(tensors: Iterable[Any], most_bytes: int) -> List[List[int]]:
    """Places of the tensors that travel together: of one type and device, in their order, as even as they can be.

    Each batch has at most ``most_bytes``, unless it is one tensor. They come in the order in which they are full.
    """
    tensors = list(tensors)
    total: Dict[Tuple[Any, Any], int] = {}
    for tensor in tensors:
        total[_kind(tensor)] = total.get(_kind(tensor), 0) + _bytes(tensor)
    share = {kind: size / max(1, -(-size // most_bytes)) for kind, size in total.items()}
    done: List[List[int]] = []
    filling: Dict[Tuple[Any, Any], Tuple[List[int], int]] = {}
    for place, tensor in enumerate(tensors):
        kind = _kind(tensor)
        batch, size = filling.pop(kind, ([], 0))
        if batch and size + _bytes(tensor) > most_bytes:
            done.append(batch)
            batch, size = [], 0
        batch.append(place)
        size += _bytes(tensor)
        if size >= share[kind]:
            done.append(batch)
        else:
            filling[kind] = (batch, size)
    return done + [batch for batch, _ in filling.values()]


def _kind(tensor: Any) -> Tuple[Any, Any]:
    return tensor.dtype, tensor.device


def _bytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


class Place:
    """One parameter's gradient within its buffer."""

    def __init__(self, name: str, parameter: Any, memory: Any) -> None:
        self.name = name
        self.parameter = parameter
        self.view = _shaped_as(parameter, memory)
        self.arrived = False

    def fill(self) -> bool:
        """Whether there is a gradient. It lies in the buffer then, and nowhere else."""
        gradient = self.parameter.grad
        if gradient is None:
            return False
        if gradient.is_sparse:
            raise RuntimeError(f"smddp: the gradient of {self.name} is sparse, which is not averaged: make it dense")
        if gradient.data_ptr() != self.view.data_ptr():
            self.view.copy_(gradient)
            self.parameter.grad = self.view
        return True


def _shaped_as(parameter: Any, memory: Any) -> Any:
    """In the parameter's order of elements, which optimizers like, if it has no gaps."""
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
        *parts, self._present = self._memory.split([*sizes, len(sizes)])
        self.places = [Place(name, parameter, part) for (name, parameter), part in zip(named, parts)]
        self._missing = len(self.places)
        self._work: Optional[Any] = None

    @property
    def is_sent(self) -> bool:
        return self._work is not None

    def take(self, place: Place) -> bool:
        """Puts a gradient in its place; whether it was the last."""
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
        self._work = torch_backend.adapter().average_named(backend, self._memory, lane, step, index, buffers)

    def receive(self) -> None:
        """Waits for the averages, and is ready for the next step."""
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
    """The buffers of a model, step by step."""

    def __init__(self, named: Sequence[Tuple[str, Any]], most_bytes: int) -> None:
        backwards = list(reversed(named))
        groups = batches([parameter for _, parameter in backwards], most_bytes)
        self.buffers = [Buffer([backwards[place] for place in group]) for group in groups]
        self._lane = f"gradients of model {next(_models)}"
        self._world = weakref.ref(_world())
        self._step = 0
        self._under_way = False
        self._at_first_gradient = False
        self._accumulators = [
            self._watch_parameter(index, place) for index, buffer in enumerate(self.buffers) for place in buffer.places
        ]

    def expect(self, outputs: List[Any]) -> None:
        """The gradients of the backward pass that begins at one of these tensors are to be averaged.

        They tell of the pass as a whole: a parameter's hook may be inside a part of it that is recomputed, which is a
        pass of its own and ends earlier. Without any, the first gradient has to do.
        """
        for output in outputs:
            output.register_hook(self._begin)
        self._at_first_gradient = not outputs

    def expect_nothing(self) -> None:
        """The gradients of the next backward pass stay this rank's own."""
        self._at_first_gradient = False

    def require_idle(self) -> None:
        """Raises RuntimeError after a pass that failed: some ranks may have its averages and others not."""
        if self._under_way:
            raise RuntimeError(
                "smddp: the last backward() of this model raised an error before all gradients were averaged, "
                "so the ranks may differ: end the job and go on from a checkpoint"
            )

    def _watch_parameter(self, index: int, place: Place) -> Any:
        with torch.enable_grad():
            accumulator = place.parameter.expand_as(place.parameter).grad_fn.next_functions[0][0]
        own = weakref.ref(self)  # the model may be wrapped again: a wrapper that is gone takes no part

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
            raise RuntimeError("smddp: the model was wrapped in a process group that is gone: wrap model.module again")
        self._under_way = True
        torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _take(self, index: int, place: Place) -> None:
        if self._at_first_gradient:
            self._begin()
        if not self._under_way:
            return
        buffer = self.buffers[index]
        if buffer.is_sent:
            raise RuntimeError(
                f"smddp: a second gradient of {place.name} came in one backward pass, when the first was sent already. "
                "A parameter that is used in several checkpointed parts needs checkpoint(..., use_reentrant=False)."
            )
        with torch.no_grad():
            if buffer.take(place):
                self._send(index)

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
        self._under_way = self._at_first_gradient = False


def _world() -> Any:
    return torch.distributed.group.WORLD


def _backend(device: Any) -> Any:
    """The backend itself, also where TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it."""
    backend = _world()._get_backend(device)
    return getattr(backend, "wrapped_pg", backend)
