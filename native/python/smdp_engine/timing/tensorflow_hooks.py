"""Measures a training process of TensorFlow 2 and Keras: installs the hooks that move the clock from phase to phase.

| phase | eager | in a function (tensorflow_graphs.py) |
|---|---|---|
| input | next() and iter() of a tf.data iterator | the operation that waits for a batch |
| forward | from a batch to the backward pass, and a call of a function that trains | the rest of its call |
| backward | GradientTape.gradient | from the loss to the last gradient |
| exchange | the library's collective operations | from the last gradient to the last average |
| optimizer | apply_gradients of Keras and tf.compat.v1.train | in forward |
| checkpoint | tf.train.Checkpoint, CheckpointManager, Model.save and save_weights | |
| evaluation | Model.evaluate and Model.predict; from a batch of an iterator that does not train to the next | |

The functions that replace TensorFlow's own have the same arguments, results and exceptions. tf.data loads in threads of
its own, which have no names and share processes with everything else, so the loader's own work is not measured.
"""

import builtins
import functools
import importlib
from types import ModuleType
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import common_hooks, emission
from .after_import import after_import
from .clock import BACKWARD, EVALUATION, EXCHANGE, FORWARD, INPUT, OPTIMIZER, OTHER, Clock, measured, measured_saves
from .common_hooks import replace
from .tensorflow_graphs import BACKWARD_PASS, EVALUATION_READING, EXCHANGING, READING, STEP, Graphs

tf: Any = importlib.import_module("tensorflow")

# Where the class of traced functions is, from the newest version of TensorFlow to the oldest.
_FUNCTIONS = (
    "tensorflow.python.eager.polymorphic_function.concrete_function",
    "tensorflow.python.eager.polymorphic_function.monomorphic_function",
    "tensorflow.python.eager.function",
)
_MOVES = {
    READING: (FORWARD, INPUT),
    EVALUATION_READING: (EVALUATION, INPUT),
    BACKWARD_PASS: (FORWARD, BACKWARD),
    EXCHANGING: (FORWARD, EXCHANGE),
}


def install() -> None:
    """Measure this process, if it is a rank of a job.

    Raises:
        ValueError: SMDP_TIMING_S is not a number.
    """
    own = emission.start()
    if own is None:
        return
    hooks = _Hooks(own.clock)
    own.correct(hooks.correction)
    print_of_python = builtins.print
    common_hooks.install(own.clock, not_converted)
    _keep_print(print_of_python)
    hooks.install()


def not_converted(function: Any) -> Any:
    """Have AutoGraph call the function as it is, in the same mode."""
    function.autograph_info__ = {}
    return function


def _keep_print(original: Any) -> None:
    """AutoGraph replaces Python's print in a function; have it treat the measured one as that."""
    measured_print = builtins.print
    if measured_print is original:
        return
    try:
        operators: Any = importlib.import_module("tensorflow.python.autograph.operators.py_builtins")
        inspection: Any = importlib.import_module("tensorflow.python.autograph.pyct.inspect_utils")
        builtin_ids = inspection._BUILTIN_FUNCTION_IDS | {id(measured_print)}
        supported = (*operators.SUPPORTED_BUILTINS, measured_print)
        del measured_print.autograph_info__  # type: ignore[attr-defined]
    except (ImportError, AttributeError, TypeError):
        builtins.print = original
    else:
        inspection._BUILTIN_FUNCTION_IDS, operators.SUPPORTED_BUILTINS = builtin_ids, supported


class _Hooks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._graphs = Graphs(lambda: clock.is_within(EVALUATION))
        self._is_tracing_step = False
        self._optimizers: List[int] = []
        self._iterator: Any = None  # of the last eager batch, and whether the script has trained since
        self._has_trained = False

    def install(self) -> None:
        self._measure_iterators()
        self._measure_functions()
        replace(tf.GradientTape, "gradient", self._gradient)
        self._measure_saves()
        replace(tf.compat.v1.train.Optimizer, "apply_gradients", self._apply)
        if tuple(map(int, tf.__version__.split(".")[:2])) < (2, 6):  # Keras is a part of TensorFlow
            self._measure_keras(tf.keras)
        after_import(
            {
                "keras": self._measure_keras,
                "tf_keras": self._measure_keras,
                "smdp_engine.tensorflow.operations": self._measure_operations,
                "smdp_engine.tensorflow.gradients": self._measure_exchange,
            }
        )

    def correction(self) -> emission.Correction:
        """What the graphs have counted: times that the clock counted as forward, and numbers."""
        moves: Dict[Tuple[int, int], int] = {}
        batches = samples = 0
        steps = {}
        for part in self._graphs.read():
            if part.name == STEP:
                steps[self._optimizers[part.number]] = part.ended
                continue
            moves[_MOVES[part.name]] = int(part.seconds * 1e9)
            if part.name in (READING, EVALUATION_READING):
                batches += part.ended
            if part.name == READING:
                samples += part.samples
        return emission.Correction(moves, batches, samples, steps)

    # --- Data ---

    def _measure_iterators(self) -> None:
        iterators = importlib.import_module("tensorflow.python.data.ops.iterator_ops")
        owned: Any = iterators.OwnedIterator
        replace(owned, "_next_internal", self._next)
        replace(owned, "get_next_as_optional", self._next)
        replace(tf.data.Dataset, "__iter__", lambda function: not_converted(measured(self._clock, INPUT, function)))

    def _next(self, following: Any) -> Any:
        clock = self._clock

        @functools.wraps(following)
        def next_of(iterator: Any) -> Any:
            if not tf.executing_eagerly():
                return self._graphs.next(iterator, following)
            if not clock.is_own_thread or clock.phase == INPUT:
                return following(iterator)
            base: Optional[int] = OTHER  # at the end of the data, and after an exception
            mark = clock.enter(INPUT)
            try:
                batch = following(iterator)
                base = self._base_after(iterator, batch)
                return batch
            finally:
                clock.leave(mark, base)
                if base == OTHER:
                    clock.drop_samples()

        return not_converted(next_of)

    def _base_after(self, iterator: Any, batch: Any) -> int:
        """The phase after a batch: an iterator is for evaluation if its batch before was followed by no training."""
        if self._iterator is iterator:
            iterator._smdp_evaluates = not self._has_trained
        self._iterator, self._has_trained = iterator, False
        if self._clock.is_within(EVALUATION) or getattr(iterator, "_smdp_evaluates", False):
            self._clock.drop_samples()
            self._clock.deliver(0)
            return EVALUATION
        self._clock.deliver(_samples_of(batch))
        return FORWARD

    def _trains(self) -> None:
        self._has_trained = True
        self._clock.use_samples()

    # --- Functions, gradients, optimizers ---

    def _measure_functions(self) -> None:
        for name in _FUNCTIONS:
            try:
                function = importlib.import_module(name).ConcreteFunction
            except (ImportError, AttributeError):
                continue
            replace(function, "_call_flat", self._call)
            return

    def _call(self, call: Any) -> Any:
        clock, graphs = self._clock, self._graphs

        @functools.wraps(call)
        def call_flat(function: Any, *args: Any, **kwargs: Any) -> Any:
            graph = function.graph
            if not tf.executing_eagerly():
                graphs.called(graph)
                return call(function, *args, **kwargs)
            is_step = graphs.trains(graph) and clock.is_own_thread and clock.is_at_base
            mark = clock.enter(FORWARD) if is_step else None
            try:
                result = call(function, *args, **kwargs)
            except BaseException:
                graphs.close()
                raise
            finally:
                if mark is not None:
                    clock.leave(mark, OTHER)
            if is_step:
                self._trains()
                for optimizer, count in graphs.steps(graph).items():
                    for _ in range(count):
                        clock.count_step(self._optimizers[optimizer])
            return result

        return not_converted(call_flat)

    def _gradient(self, gradient: Any) -> Any:
        clock = self._clock

        @functools.wraps(gradient)
        def gradient_of(tape: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            if not tf.executing_eagerly():
                return self._graphs.gradient(lambda: gradient(tape, target, *args, **kwargs), target)
            clock.adopt()
            if not clock.is_own_thread or clock.is_within(BACKWARD):
                return gradient(tape, target, *args, **kwargs)
            self._trains()
            mark = clock.enter(BACKWARD)
            try:
                return gradient(tape, target, *args, **kwargs)
            finally:
                clock.leave(mark, OTHER)

        return not_converted(gradient_of)

    def _apply(self, apply: Any) -> Any:
        clock = self._clock

        @functools.wraps(apply)
        def apply_gradients(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if not tf.executing_eagerly():
                return self._trace_step(optimizer, lambda: apply(optimizer, *args, **kwargs))
            if not clock.is_own_thread or clock.is_within(OPTIMIZER):
                return apply(optimizer, *args, **kwargs)
            mark = clock.enter(OPTIMIZER)
            try:
                result = apply(optimizer, *args, **kwargs)
            finally:
                clock.leave(mark, OTHER)
            clock.count_step(self._optimizers[self._number_of(optimizer)])
            return result

        return not_converted(apply_gradients)

    def _trace_step(self, optimizer: Any, apply: Callable[[], Any]) -> Any:
        """One optimizer may call the same method of its base class, or of one that it wraps."""
        if self._is_tracing_step:
            return apply()
        self._is_tracing_step = True
        try:
            result = apply()
        finally:
            self._is_tracing_step = False
        self._graphs.step(self._number_of(optimizer))
        return result

    def _number_of(self, optimizer: Any) -> int:
        if id(optimizer) not in self._optimizers:
            self._optimizers.append(id(optimizer))
        return self._optimizers.index(id(optimizer))

    # --- Keras, the library, checkpoints ---

    def _measure_keras(self, keras: Any) -> None:
        for owner in (keras.optimizers, getattr(keras.optimizers, "legacy", None)):
            optimizer = getattr(owner, "Optimizer", None)
            if isinstance(optimizer, type):
                for base in optimizer.__mro__:
                    for name in {"apply", "apply_gradients"} & vars(base).keys():
                        replace(base, name, self._apply)
        for name in ("evaluate", "predict"):
            replace(keras.Model, name, lambda function: not_converted(measured(self._clock, EVALUATION, function)))
        for name in ("save", "save_weights", "export"):
            replace(keras.Model, name, self._saves)

    def _measure_operations(self, operations: ModuleType) -> None:
        measure = functools.partial(measured, self._clock, EXCHANGE)

        def eager_only(function: Any) -> Any:
            eager = measure(function)

            @functools.wraps(function)
            def in_turn(*args: Any, **kwargs: Any) -> Any:
                return (eager if tf.executing_eagerly() else function)(*args, **kwargs)

            return not_converted(in_turn)

        replace(operations, "_in_turn", eager_only)

    def _measure_exchange(self, gradients: Any) -> None:
        def exchange(average: Any) -> Any:
            @functools.wraps(average)
            def average_of(how: Any, own: Any) -> Any:
                if tf.executing_eagerly():
                    return average(how, own)  # its operations are measured
                return self._graphs.exchange(lambda: average(how, own), own)

            return not_converted(average_of)

        replace(gradients.Exchange, "average", exchange)

    def _measure_saves(self) -> None:
        for owner, names in (
            (tf.train.Checkpoint, ("save", "write")),
            (tf.train.CheckpointManager, ("save",)),
            (tf.saved_model, ("save",)),
        ):
            for name in names:
                replace(owner, name, self._saves)

    def _saves(self, function: Any) -> Any:
        return not_converted(measured_saves(self._clock, function))


def _samples_of(batch: Any) -> int:
    """The length of the first tensor in the batch that has one; 0 if there is none."""
    for tensor in tf.nest.flatten(batch):
        shape = getattr(tensor, "shape", None)
        if shape is not None and shape.rank:
            return int(shape[0] or 0)
    return 0
