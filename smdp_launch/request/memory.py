"""A lower bound of the memory that training a model needs on each GPU.

It counts what the GPU holds together when the optimizer steps: parameters, gradients and the states of the optimizer.
Activations, buffers of the framework and of the exchange, and fragmentation come on top, so that no job needs less.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from smdp_launch.jobfile.model.spec import Model

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: Bytes of states for each byte of a trainable parameter, in the type of the parameters.
_STATES = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "adafactor": 0}
_BYTE_STATES = {"adam8bit": 2}

GIB = 1 << 30


class Need(NamedTuple):
    """Bytes on each GPU, at least."""

    parameters: int
    gradients: int
    states: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.states


def least_memory(
    model: Model, workers: int, *, offloads_states: bool = False, offloads_parameters: bool = False
) -> Need:
    """The least that ``model`` needs on each of ``workers`` GPUs.

    Args:
        offloads_states: the optimizer runs on the host, with its states and gradients.
        offloads_parameters: the parameters are in the memory of the host too.
    """
    trainable = min(model.trainable or model.parameters, model.parameters)
    size, level = _BYTES[model.dtype], ("none", "optimizer", "gradients", "parameters").index(model.sharding)

    def share(count: int, is_sharded: bool) -> int:
        return math.floor(count / workers) if is_sharded else count

    states = 0
    if model.optimizer is not None:
        each = _BYTE_STATES.get(model.optimizer, _STATES.get(model.optimizer, 0) * size)
        states = share(trainable, level >= 1) * each
    return Need(
        parameters=0 if offloads_parameters else share(model.parameters, level >= 3) * size,
        gradients=0 if offloads_states else share(trainable, level >= 2) * size,
        states=0 if offloads_states else states,
    )
