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
    """Has the optimizer, itself, average the gradients that it is given; class and name stay, so that it saves as what
    it was.

    Raises:
        ValueError: it averages already.
    """
    if _averages(optimizer):
        raise ValueError("this optimizer averages gradients already")
    # Keras 3 brings every way to its apply(); Keras 2 has none, and brings them to apply_gradients().
    if hasattr(optimizer, "apply"):
        optimizer.apply = _Apply(optimizer, how)
        optimizer._clip_gradients = _Clip(optimizer, how)
    else:
        optimizer.apply_gradients = _ApplyGradients(optimizer, how)
    return optimizer


def _averages(optimizer: Any) -> bool:
    return isinstance(vars(optimizer).get(_method_of(optimizer)), _Averaging)


def _method_of(optimizer: Any) -> str:
    return "apply" if hasattr(optimizer, "apply") else "apply_gradients"


def _move_outwards(optimizer: Any) -> None:
    """Has the loss scaler around an optimizer that averages do it in its place.

    A rank whose own gradients were infinite would else leave out a step, and the exchange, that the others make.
    """
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is None or not _averages(inner):
        return
    how = vars(inner)[_method_of(inner)].how
    for name in ("apply", "_clip_gradients", "apply_gradients"):
        if isinstance(vars(inner).get(name), _Averaging):
            delattr(inner, name)
    distribute(optimizer, how)


class _Averaging:
    """A method of one optimizer, in place of its class's."""

    def __init__(self, optimizer: Any, how: Exchange) -> None:
        self.optimizer = optimizer
        self.how = how

    def average(self, gradients: Iterable[Any]) -> List[Any]:
        _refuse_loss_scaler(self.optimizer)
        return self.how.average(list(gradients))

    def accumulates(self) -> bool:
        return bool(getattr(self.optimizer, "gradient_accumulation_steps", None))


class _Apply(_Averaging):
    """Keras 3."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def __call__(self, grads: Iterable[Any], trainable_variables: Any = None) -> Any:
        grads = list(grads) if self.accumulates() else self.average(grads)
        return type(self.optimizer).apply(self.optimizer, grads, trainable_variables)


class _Clip(_Averaging):
    """Keras 3 comes here once for every update, with what was accumulated."""

    def __call__(self, grads: Any) -> Any:
        if self.accumulates():
            grads = self.average(grads)
        return type(self.optimizer)._clip_gradients(self.optimizer, grads)


class _ApplyGradients(_Averaging):
    """Keras 2, its optimizers and its older ones."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def __call__(self, grads_and_vars: Iterable[Tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        averages = self.average(gradient for gradient, _ in pairs)
        pairs = [(average, variable) for average, (_, variable) in zip(averages, pairs)]
        return type(self.optimizer).apply_gradients(self.optimizer, pairs, *args, **kwargs)


def _refuse_loss_scaler(optimizer: Any) -> None:
    """Raises RuntimeError where a loss scaler has called the optimizer: it leaves out steps for this rank alone."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        caller = frame.f_locals.get("self")
        if _is_loss_scaler(caller) and getattr(caller, "inner_optimizer", None) is optimizer:
            raise RuntimeError(
                f"smdp: a {type(caller).__name__} stands around the optimizer that averages gradients, and would have "
                "one rank leave out a step that the others make: give DistributedOptimizer the loss scaler itself, or "
                "model.fit the BroadcastVariablesCallback, which sees to it"
            )


def _is_loss_scaler(anything: Any) -> bool:
    return any(one.__name__.startswith("LossScaleOptimizer") for one in type(anything).__mro__)


class BroadcastVariablesCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Gives every rank the root's model and optimizer before the first step of ``model.fit``.

    A model that Keras would compile with XLA is compiled without: gradients are exchanged by the hosts' CPUs.
    """

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self._root_rank = root_rank
        self._is_done = False

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        _move_outwards(model.optimizer)  # compile() of mixed_float16 has put a loss scaler around it
        asks = "jit_compile" if hasattr(model, "jit_compile") else "_jit_compile"  # as of TensorFlow 2.11
        if getattr(model, asks, None):
            setattr(model, asks, False)
            model.train_function = None  # a step that was compiled before
            if job.rank() == 0:
                sys.stderr.write("smdp: the model is trained without jit_compile: XLA cannot exchange gradients\n")

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if not tf.executing_eagerly():
            raise RuntimeError(
                "smdp: model.fit is averaged where TensorFlow executes eagerly: leave out disable_eager_execution(), "
                "or use broadcast_global_variables() and a loop of your own"
            )
        self._is_done = bool(self.model.built and self.model.trainable_variables)
        if self._is_done:
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """For a model that its first batch has made."""
        if not self._is_done:
            self._is_done = True
            self._broadcast()

    def _broadcast(self) -> None:
        optimizer = self.model.optimizer
        for one in (optimizer, getattr(optimizer, "inner_optimizer", None)):
            if one is not None and hasattr(one, "build") and not getattr(one, "built", False):
                one.build(self.model.trainable_variables)
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
    try:
        found = optimizer.variables
        return list(found() if callable(found) else found)
    except AttributeError:  # the loss scaler of TensorFlow 2.11 has the method, and not what it gives
        return _variables_of(optimizer.inner_optimizer)
