"""Keras 2 and 3: ``model.fit`` on all ranks, with an optimizer that averages gradients and a callback for the start."""

import importlib
import sys
from typing import Any, Dict, Iterable, List, Optional, Set, Tuple

from . import job
from .gradients import Exchange
from .reductions import allgather, oob_allreduce
from .variables import broadcast_variables

np: Any = importlib.import_module("numpy")
tf: Any = importlib.import_module("tensorflow")


def is_keras_optimizer(optimizer: Any) -> bool:
    names = {f"{base.__module__}.{base.__name__}" for base in type(optimizer).__mro__}
    return any(name.split(".")[0] in {"keras", "tf_keras"} and "optimizer" in name for name in names)


def distribute(optimizer: Any, how: Exchange) -> Any:
    """Make this optimizer object average the gradients before it applies them. Its class and name are unchanged, so it
    is saved and loaded as before.

    Raises:
        ValueError: it already averages gradients.
    """
    if _averages(optimizer):
        raise ValueError("this optimizer already averages gradients: call DistributedOptimizer once for it")
    # All methods call apply() in Keras 3, and apply_gradients() in Keras 2.
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
    """Move the averaging from an optimizer to the loss scaler that wraps it.

    Otherwise a rank with infinite gradients would skip a step, and its exchange, that the other ranks perform.
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
    """Replaces a method of one optimizer object."""

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
    """Keras 3 calls it once for every update, with the accumulated gradients."""

    def __call__(self, grads: Any) -> Any:
        if self.accumulates():
            grads = self.average(grads)
        return type(self.optimizer)._clip_gradients(self.optimizer, grads)


class _ApplyGradients(_Averaging):
    """Keras 2, with its new and legacy optimizers."""

    @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]
    def __call__(self, grads_and_vars: Iterable[Tuple[Any, Any]], *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        averages = self.average(gradient for gradient, _ in pairs)
        pairs = [(average, variable) for average, (_, variable) in zip(averages, pairs)]
        return type(self.optimizer).apply_gradients(self.optimizer, pairs, *args, **kwargs)


def _refuse_loss_scaler(optimizer: Any) -> None:
    """Raises RuntimeError if a loss scaler calls the optimizer: it may skip a step on this rank only."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        caller = frame.f_locals.get("self")
        if _is_loss_scaler(caller) and getattr(caller, "inner_optimizer", None) is optimizer:
            raise RuntimeError(
                f"smdp: a {type(caller).__name__} wraps the optimizer that averages gradients, so one rank could skip "
                "a step that the others perform: pass the loss scaler to DistributedOptimizer, or pass the "
                "BroadcastVariablesCallback to model.fit"
            )


def _is_loss_scaler(value: Any) -> bool:
    return any(base.__name__.startswith("LossScaleOptimizer") for base in type(value).__mro__)


class BroadcastVariablesCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Copies the root's model and optimizer to every rank before the first step of ``model.fit``.

    It turns XLA compilation of the model off: the hosts' CPUs exchange the gradients.
    """

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self._root_rank = root_rank
        self._is_done = False

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        _move_outwards(model.optimizer)  # with mixed_float16, compile() wraps the optimizer in a loss scaler
        attribute = "jit_compile" if hasattr(model, "jit_compile") else "_jit_compile"  # in TensorFlow 2.11
        if getattr(model, attribute, None):
            setattr(model, attribute, False)
            model.train_function = None  # a step that may be compiled already
            if job.rank() == 0:
                sys.stderr.write("smdp: training the model without jit_compile: XLA cannot exchange gradients\n")

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if not tf.executing_eagerly():
            raise RuntimeError(
                "smdp: model.fit averages gradients only if TensorFlow executes eagerly: remove "
                "disable_eager_execution(), or use broadcast_global_variables() and your own training loop"
            )
        self._require_equal_steps()
        self._is_done = bool(self.model.built and self.model.trainable_variables)
        if self._is_done:
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """For a model that its first batch builds."""
        if not self._is_done:
            self._is_done = True
            self._broadcast()

    def _require_equal_steps(self) -> None:
        """Raises ValueError if a rank makes more steps than another: it would wait for gradients until the deadline."""
        optimizer = self.model.optimizer
        if not _averages(optimizer) or getattr(optimizer, "gradient_accumulation_steps", None):
            return  # not every step exchanges gradients
        own = (self.params or {}).get("steps") or 0  # None for data of unknown length
        steps: List[int] = allgather(tf.constant([own], tf.int64)).numpy().tolist()
        other = next((rank for rank, count in enumerate(steps) if count != own), None)
        if other is not None and 0 not in steps:
            raise ValueError(
                f"smdp: model.fit makes {own} steps in an epoch on this rank, {job.rank()}, and {steps[other]} on rank "
                f"{other}, but each step exchanges gradients: give all ranks as many batches, or set steps_per_epoch"
            )

    def _broadcast(self) -> None:
        optimizer = self.model.optimizer
        for part in (optimizer, getattr(optimizer, "inner_optimizer", None)):
            if part is not None and hasattr(part, "build") and not getattr(part, "built", False):
                part.build(self.model.trainable_variables)
        broadcast_variables([*self.model.variables, *_variables_of(optimizer)], self._root_rank)


class MetricAverageCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Averages an epoch's metrics over all ranks, for the callbacks after it: put it before those that save or stop.

    A metric is a number: of Python or NumPy, or a tensor without dimensions. Others keep each rank's own value.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reported: Set[str] = set()

    def on_epoch_end(self, _epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        logs = {} if logs is None else logs
        numbers: List[str] = sorted(name for name, value in logs.items() if _is_number(value))
        self._report(sorted(logs.keys() - numbers - self._reported))
        if numbers:
            own = tf.constant([float(logs[name]) for name in numbers], tf.float64)
            logs.update(zip(numbers, oob_allreduce(own).numpy().tolist()))

    def _report(self, names: List[str]) -> None:
        self._reported.update(names)
        if names and job.rank() == 0:
            what = "is no number" if len(names) == 1 else "are no numbers"
            sys.stderr.write(f"smdp: MetricAverageCallback does not average {', '.join(names)}, which {what}\n")


def _is_number(value: Any) -> bool:
    if not hasattr(value, "dtype"):
        return isinstance(value, (int, float))
    array = np.asarray(value)
    return array.ndim == 0 and array.dtype.kind in "biuf"


def _variables_of(optimizer: Any) -> List[Any]:
    try:
        variables = optimizer.variables
        return list(variables() if callable(variables) else variables)
    except AttributeError:  # the loss scaler of TensorFlow 2.11 has the method but not the attribute that it returns
        return _variables_of(optimizer.inner_optimizer)
