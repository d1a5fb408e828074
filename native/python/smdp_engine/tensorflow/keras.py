"""Keras 2 and 3: ``model.fit`` on all ranks, by an optimizer that averages gradients and a callback for the start."""

import importlib
import sys
from typing import Any, Dict, Iterable, List, Optional, Tuple

from . import job
from .gradients import Exchange
from .reductions import oob_allreduce
from .variables import broadcast_variables

tf: Any = importlib.import_module("tensorflow")


def is_keras_optimizer(optimizer: Any) -> bool:
    names = {f"{one.__module__}.{one.__name__}" for one in type(optimizer).__mro__}
    return any(one.split(".")[0] in {"keras", "tf_keras"} and "optimizer" in one for one in names)


def distribute(optimizer: Any, how: Exchange) -> Any:
    """Has the optimizer, itself, average the gradients that it is given; its class keeps its name, so that it saves
    as what it was.

    Raises:
        ValueError: it averages already.
    """
    kind = type(optimizer)
    if hasattr(kind, "smdp_exchange"):
        raise ValueError("this optimizer averages gradients already")
    scaled = _scaled(optimizer)
    if scaled is not None:
        return distribute(scaled, how)
    # Keras 3 brings every way to its apply(); Keras 2 has none, and brings them to apply_gradients().
    mixin = _Applies if hasattr(kind, "apply") else _AppliesGradients
    optimizer.__class__ = type(kind.__name__, (mixin, kind), {"__module__": kind.__module__, "smdp_exchange": how})
    return optimizer


def _scaled(optimizer: Any) -> Any:
    """With loss scaling around it where model.compile() of Keras 3 would add it.

    The gradients must be averaged before it looks for infinite ones: else a rank that has some leaves out a step that
    the others make. None if there is nothing to add.
    """
    if not hasattr(optimizer, "apply") or hasattr(optimizer, "inner_optimizer"):
        return None
    keras = importlib.import_module("keras")
    if keras.config.dtype_policy().name != "mixed_float16":
        return None
    return keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")


class _Applies:
    """Keras 3."""

    smdp_exchange: Exchange

    def apply(self, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        grads = list(grads)
        if not self._accumulates():
            grads = self.smdp_exchange.average(grads)
        return super().apply(grads, trainable_variables)  # type: ignore[misc]

    def _clip_gradients(self, grads: Any) -> Any:
        """Keras comes here once for every update, with what was accumulated."""
        if self._accumulates():
            grads = self.smdp_exchange.average(list(grads))
        return super()._clip_gradients(grads)  # type: ignore[misc]

    def _accumulates(self) -> bool:
        return bool(getattr(self, "gradient_accumulation_steps", None))


class _AppliesGradients:
    """Keras 2, its optimizers and its older ones."""

    smdp_exchange: Exchange

    def apply_gradients(self, grads_and_vars: Iterable[Tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        averages = self.smdp_exchange.average([gradient for gradient, _ in pairs])
        pairs = [(average, variable) for average, (_, variable) in zip(averages, pairs)]
        return super().apply_gradients(pairs, *args, **kwargs)  # type: ignore[misc]


class BroadcastVariablesCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Gives every rank the root's model and optimizer before the first step of ``model.fit``.

    A model that Keras would compile with XLA is compiled without: gradients are exchanged by the hosts' CPUs.
    """

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self._root_rank = root_rank

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        if getattr(model, "jit_compile", None):
            model.jit_compile = False
            model.train_function = None  # a step that was compiled before
            if job.rank() == 0:
                sys.stderr.write("smdp: the model is trained without jit_compile: XLA cannot exchange gradients\n")

    def on_train_begin(self, _logs: Optional[Dict[str, Any]] = None) -> None:
        optimizer = self.model.optimizer
        if not getattr(optimizer, "built", True):
            optimizer.build(self.model.trainable_variables)
        broadcast_variables([*self.model.variables, *_variables_of(optimizer)], self._root_rank)


class MetricAverageCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Averages an epoch's numbers over all ranks, for the callbacks after it: put it before those that save or stop."""

    def on_epoch_end(self, _epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        numbers: List[str] = sorted(name for name, value in (logs or {}).items() if isinstance(value, (int, float)))
        if not logs or not numbers:
            return
        averages = oob_allreduce(tf.constant([logs[name] for name in numbers], tf.float64)).numpy().tolist()
        logs.update(zip(numbers, averages))


def _variables_of(optimizer: Any) -> List[Any]:
    found = optimizer.variables
    return list(found() if callable(found) else found)
