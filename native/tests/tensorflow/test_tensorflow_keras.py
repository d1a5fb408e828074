"""Keras 2 and 3 with several ranks: the results and requirements of model.fit, and saved models."""

from pathlib import Path
from typing import List

import pytest
import ranks

pytestmark = pytest.mark.tensorflow

INIT = """
sdp.init()
FOLDER = os.environ["FOLDER"]
generator = np.random.default_rng(0)
x = generator.normal(size=(64, 8)).astype("float32")
y = (x.sum(1, keepdims=True) * 0.3).astype("float32")
def model(seed=rank + 1):
    tf.keras.utils.set_random_seed(seed)
    return tf.keras.Sequential([tf.keras.layers.InputLayer((8,)), tf.keras.layers.Dense(6, activation="tanh"),
                                tf.keras.layers.Dense(1)])
def alone(optimizer, batch=16, **compile):  # with the whole batch, in one process, from rank 0's initial values
    single = model(seed=1)
    single.compile(optimizer=optimizer, loss="mse", **compile)
    single.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0)
    return single.get_weights()
def of_ranks(optimizer, batch=16, callbacks=(), **compile):
    shared = model()
    shared.compile(optimizer=optimizer, loss="mse", **compile)
    order = np.arange(64).reshape(-1, size, batch // size)[:, rank].ravel()
    history = shared.fit(x[order], y[order], batch_size=batch // size, epochs=2, shuffle=False, verbose=0,
                         callbacks=[sdp.BroadcastVariablesCallback(), *callbacks])
    return shared, history
def same(ours, theirs, rtol=1e-4):
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)
def agree(weights):
    digest = tf.constant([[float(np.abs(one).sum()) for one in weights]], tf.float64)
    everyones = sdp.allgather(digest).numpy()
    assert (everyones == everyones[0]).all(), everyones
KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
"""

CASES = {
    "optimizers compute what one process computes": """
makes = [lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9), lambda: tf.keras.optimizers.Adam(0.01),
         lambda: tf.keras.optimizers.SGD(0.1, clipnorm=0.05)]
if not KERAS_3:
    makes += [lambda: tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9)]
for make in makes:
    shared, _ = of_ranks(sdp.DistributedOptimizer(make()))
    agree(shared.get_weights())
    same(shared.get_weights(), alone(make()))
""",
    "eager steps too": """
optimizer = tf.keras.optimizers.SGD(0.1)
shared, _ = of_ranks(sdp.DistributedOptimizer(optimizer), run_eagerly=True)
same(shared.get_weights(), alone(tf.keras.optimizers.SGD(0.1)))
""",
    "accumulated gradients are exchanged when they are applied": """
if KERAS_3:
    def make():
        return tf.keras.optimizers.SGD(0.1, gradient_accumulation_steps=2, clipnorm=0.1)
    shared, _ = of_ranks(sdp.DistributedOptimizer(make()))
    agree(shared.get_weights())
    same(shared.get_weights(), alone(make()))
""",
    "half precision, with a step that one rank alone finds infinite": """
policy = tf.keras.mixed_precision.set_global_policy
scaler = tf.keras.mixed_precision.LossScaleOptimizer
def train(make):
    policy("mixed_float16")
    try:
        shared = model()
        shared.compile(optimizer=make(), loss="mse")  # puts a scaler around what has none
        spoilt = x.copy()
        spoilt[5] = np.inf if rank == 1 else 1.0
        shared.fit(spoilt, y, batch_size=16, epochs=1, shuffle=False, verbose=0,
                   callbacks=[sdp.BroadcastVariablesCallback()])
    finally:
        policy("float32")
    agree(shared.get_weights())
    assert all(np.isfinite(one).all() for one in shared.get_weights())
    return shared.get_weights()
found = train(lambda: sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)))
same(found, train(lambda: sdp.DistributedOptimizer(scaler(tf.keras.optimizers.SGD(0.01)))), rtol=0)
same(found, train(lambda: scaler(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)))), rtol=0)
""",
    "a loss scaler around the optimizer is refused in a custom loop": """
optimizer = tf.keras.mixed_precision.LossScaleOptimizer(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)))
variable = tf.Variable([1.0])
for apply in (optimizer.apply_gradients, tf.function(optimizer.apply_gradients)):
    try:
        apply([(tf.constant([1.0]), variable)])
    except RuntimeError as error:
        assert "pass the loss scaler to DistributedOptimizer" in str(error), error
    else:
        raise AssertionError("no error")
""",
    "a caller with an inner optimizer is no loss scaler": """
class Outer:
    def __init__(self):
        self.inner_optimizer = sdp.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    def step(self, variable):
        self.inner_optimizer.apply_gradients([(tf.constant([float(rank)]), variable)])
variable = tf.Variable([5.0])
Outer().step(variable)
assert variable.numpy().tolist() == [5.0 - (size - 1) / 2]
""",
    "data of unknown length, and a weight that does not depend on them": """
from itertools import repeat
class Penalty(tf.keras.layers.Layer):
    def build(self, shape):
        self.own = self.add_weight(shape=(1,), initializer="ones", name="own")
    def call(self, x):
        self.add_loss(tf.reduce_sum(self.own ** 2))
        return x
shared = tf.keras.Sequential([tf.keras.layers.Dense(2), Penalty(), tf.keras.layers.Dense(1)])
shared.compile(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
shape = (tf.TensorSpec((2, 3)), tf.TensorSpec((2, 1)))
data = tf.data.Dataset.from_generator(lambda: repeat((np.ones((2, 3)), np.ones((2, 1))), 3), output_signature=shape)
shared.fit(data, epochs=3, verbose=0, callbacks=[sdp.BroadcastVariablesCallback()])
agree(shared.get_weights())
""",
    "half precision in a custom loop, without a scaler": """
tf.keras.mixed_precision.set_global_policy("mixed_float16")
try:
    def moved(optimizer):
        shared = model(seed=1)
        before = shared.get_weights()
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.cast(shared(x), tf.float32) - y) ** 2)
        optimizer.apply_gradients(zip(tape.gradient(loss, shared.trainable_variables), shared.trainable_variables))
        return [after - start for after, start in zip(shared.get_weights(), before)]
    same(moved(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))), moved(tf.keras.optimizers.SGD(0.1)))
finally:
    tf.keras.mixed_precision.set_global_policy("float32")
""",
    "different numbers of steps are refused if the steps exchange gradients": """
rows = 48 if rank == 2 else 64
def fit(optimizer):
    shared = model()
    shared.compile(optimizer=optimizer, loss="mse")
    shared.fit(x[:rows], y[:rows], batch_size=16, epochs=2, verbose=0,
               callbacks=[sdp.BroadcastVariablesCallback(), sdp.MetricAverageCallback()])
fit(tf.keras.optimizers.SGD(0.1))
try:
    fit(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)))
except ValueError as error:
    wanted = "makes 3 steps in an epoch on this rank, 2, and 4 on rank 0" if rank == 2 else "and 3 on rank 2"
    assert wanted in str(error), error
else:
    raise AssertionError("no error")
""",
    "a model that its first batch builds": """
class Two(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.one, self.two = tf.keras.layers.Dense(6, activation="tanh"), tf.keras.layers.Dense(1)
    def call(self, images):
        return self.two(self.one(images))
for make in (Two, lambda: tf.keras.Sequential([tf.keras.layers.Dense(6), tf.keras.layers.Dense(1)])):
    tf.keras.utils.set_random_seed(1 + rank)
    shared = make()
    shared.compile(optimizer=sdp.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), loss="mse")
    shared.fit(x, y, batch_size=16, epochs=1, verbose=0, callbacks=[sdp.BroadcastVariablesCallback()])
    agree(shared.get_weights())
""",
    "one rank resumes and broadcasts model and optimizer": """
first, _ = of_ranks(sdp.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)))
path = os.path.join(FOLDER, "resumed.keras")
if rank == 0:
    first.save(path)
    shared = tf.keras.models.load_model(path)
    optimizer = shared.optimizer
else:
    shared, optimizer = model(), tf.keras.optimizers.Adam(0.01)
shared.compile(optimizer=sdp.DistributedOptimizer(optimizer), loss="mse")
shared.fit(x, y, batch_size=16, epochs=1, verbose=0, callbacks=[sdp.BroadcastVariablesCallback()])
agree(shared.get_weights())
assert int(shared.optimizer.iterations) == 12
""",
    "a model with XLA is trained without it": """
shared, _ = of_ranks(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), jit_compile=True)
agree(shared.get_weights())
refused = model()
refused.compile(optimizer=sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse", jit_compile=True)
try:
    refused.fit(x, y, verbose=0)
except NotImplementedError as error:
    assert "model.compile(..., jit_compile=False)" in str(error)
else:
    raise AssertionError("no error")
""",
    "an epoch's numbers are averaged for the callbacks after": """
class Sees(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        seen.append(logs["loss"])
seen = []
_, history = of_ranks(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)),
                      callbacks=[sdp.MetricAverageCallback(), Sees()])
everyones = sdp.allgather(tf.constant([seen], tf.float64)).numpy()
assert len(seen) == 2 and (everyones == everyones[0]).all(), everyones
""",
    "numbers of NumPy and tensors are averaged, and what is no number is named once": """
class Adds(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs.update(whole=rank, half=np.float16(rank), single=np.float32(rank), double=np.float64(rank),
                    integer=np.int64(rank), array=np.array(rank), tensor=tf.constant(float(rank)),
                    rows=np.array([1.0, rank]), text="of rank %d" % rank)
class Sees(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        seen.append(dict(logs))
import contextlib, io
seen, said = [], io.StringIO()
with contextlib.redirect_stderr(said):
    of_ranks(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)),
             callbacks=[Adds(), sdp.MetricAverageCallback(), Sees()])
names = ("whole", "half", "single", "double", "integer", "array", "tensor")
assert [[logs[name] for name in names] for logs in seen] == [[1.5] * len(names)] * 2, seen
assert all(logs["rows"][1] == rank and logs["text"] == f"of rank {rank}" for logs in seen)
assert said.getvalue().count("does not average rows, text, which are no numbers") == (rank == 0), said.getvalue()
""",
    "a model is saved and loaded unchanged": """
register = getattr(tf.keras, "saving", tf.keras.utils).register_keras_serializable
@register(package="mine")
class Mine(tf.keras.optimizers.SGD):
    pass
for kind in (tf.keras.optimizers.Adam, Mine):
    shared, _ = of_ranks(sdp.DistributedOptimizer(kind(0.01)))
    if rank == 0:
        path = os.path.join(FOLDER, "model.keras")
        shared.save(path)
        loaded = tf.keras.models.load_model(path)
        assert type(loaded.optimizer) is kind
        same(loaded.get_weights(), shared.get_weights(), rtol=0)
        assert int(loaded.optimizer.iterations) == 8
sdp.barrier()
""",
    "wrapping twice is refused": """
once = sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
try:
    sdp.DistributedOptimizer(once)
except ValueError as error:
    assert "already averages gradients" in str(error)
else:
    raise AssertionError("no error")
""",
    "a custom loop with the wrapped optimizer": """
shared = model()
optimizer = sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))
sdp.broadcast_variables(shared.variables, root_rank=0)
@tf.function
def step(images, labels):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((shared(images) - labels) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, shared.trainable_variables), shared.trainable_variables))
for epoch in range(2):
    for start in range(0, 64, 16):
        mine = slice(start + rank * 16 // size, start + (rank + 1) * 16 // size)
        step(x[mine], y[mine])
same(shared.get_weights(), alone(tf.keras.optimizers.SGD(0.1)))
""",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> List[ranks.Outcome]:
    folder: Path = tmp_path_factory.mktemp("keras")
    body = INIT + ranks.in_turn(CASES)
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2", "FOLDER": str(folder)}
    return ranks.start([2, 2], body, preamble=ranks.TENSORFLOW, env=environment).finish(280)


@pytest.mark.parametrize("name", CASES)
def test_keras(name: str, outcomes: List[ranks.Outcome]) -> None:
    for outcome in outcomes:
        assert f"passed {name}\n" in outcome.out, f"rank {outcome.rank}: {outcome.err}"


def test_job_exits_successfully(outcomes: List[ranks.Outcome]) -> None:
    assert [outcome.code for outcome in outcomes] == [0, 0, 0, 0], [outcome.err for outcome in outcomes]
