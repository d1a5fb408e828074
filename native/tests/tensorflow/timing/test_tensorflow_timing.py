"""Measured ranks of TensorFlow and Keras: the results of unmeasured ones, and the numbers of the events."""

import measured_tensorflow
import pytest

pytestmark = pytest.mark.tensorflow

KERAS = """
KERAS_3 = hasattr(tf.keras.optimizers.SGD, "apply")
def fit(optimizer, steps=16, batches=32, samples=128, **settings):
    model = make_model()
    model.compile(optimizer, "mse", metrics=["mae"], **settings)
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, validation_data=(x, y))
    fields = numbers(steps, batches, samples)
    if own is not None:
        assert fields["evaluation_s"] > 0 and fields["forward_s"] > 0 and fields["input_s"] > 0, fields
        assert bool(fields["optimizer_s"]) == bool(settings.get("run_eagerly")), fields
    show(settings, digest(model.get_weights()), history.history)
fit("adam")
fit("adam", steps_per_execution=4)
fit("adam", run_eagerly=True)
fit("adam", jit_compile=True)
if not KERAS_3:
    fit(tf.keras.optimizers.legacy.Adam())
with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
    fit("adam", batches=0, samples=0)
tf.keras.mixed_precision.set_global_policy("mixed_float16")
model = make_model()
model.compile("adam", "mse")
model.fit(x, y, batch_size=8, verbose=0)
fields = event()
assert own is None or 0 < fields["steps"] <= 8, fields  # the loss scaler may skip steps
show(digest(model.get_weights()))
"""

LOOPS = """
model, optimizer = make_model(), tf.keras.optimizers.Adam()
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(64, seed=1).batch(8)
def update(a, b):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(a, training=True) - b) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
step = tf.function(update)
evaluate = tf.function(lambda a: model(a))
def shown(name, *expected):
    fields = numbers(*expected)
    show(name, digest(model.get_weights()))
    return fields
for a, b in data: step(a, b)
shown("a function", 8, 8, 64)
for a, b in data: update(a, b)
fields = shown("eager", 8, 8, 64)
assert own is None or (fields["backward_s"] > 0 and fields["optimizer_s"] > 0), fields
for a, b in data: step(a, b)
for a, b in data: evaluate(a)
fields = shown("evaluation", 8, 16, 64)
assert own is None or fields["evaluation_s"] > 0, fields
@tf.function
def counted(iterator, count):
    for _ in tf.range(count):
        update(*next(iterator))
counted(iter(data), 8)
shown("a loop in a function", 8, 8, 64)
@tf.function
def all_of(iterator):
    for a, b in iterator: update(a, b)
all_of(iter(data))
shown("a loop over an iterator", 8, 8, 0)
@tf.function
def two(one, other):
    a, b = next(one)
    c, d = next(other)
    e, f = next(one)
    return update(a, b) + update(c, d) + update(e, f)
for _ in range(2): two(iter(data), iter(data))
shown("two iterators", 6, 6, 48)
@tf.function
def vectorized(iterator):
    a, _ = next(iterator)
    with tf.GradientTape() as tape:
        tape.watch(a)
        result = model(a)
    def square(row):
        with tf.GradientTape() as inner:
            inner.watch(row)
            total = tf.reduce_sum(row ** 2)
        return inner.gradient(total, row)
    return tf.reduce_sum(tape.batch_jacobian(result, a)) + tf.reduce_sum(tf.vectorized_map(square, a))
show("vectorized", vectorized(iter(data)).numpy())
"""


@pytest.mark.parametrize("body", [KERAS, LOOPS], ids=["keras", "loops"])
def test_results_are_the_same_bits_with_and_without_the_measurement(body: str) -> None:
    measured = measured_tensorflow.run(body)
    assert len(measured) >= 7
    assert measured == measured_tensorflow.run(body, env=measured_tensorflow.OFF)


def test_wait_for_a_batch_is_input_while_it_lasts() -> None:
    measured_tensorflow.run(
        """
        go = threading.Event()
        def items():
            yield x[:8], y[:8]
            go.wait()
            yield x[8:16], y[8:16]
        form = (tf.TensorSpec((None, 8)), tf.TensorSpec((None, 1)))
        data = tf.data.Dataset.from_generator(items, output_signature=form)
        model = make_model()
        model.compile("sgd", "mse")
        make_model().predict(x, verbose=0)  # a process that does nothing writes no event
        def watch():  # the graph waits for the second batch until an event has its time
            while event()["input_s"] < 0.05: time.sleep(0.1)
            go.set()
        watcher = threading.Thread(target=watch)
        watcher.start()
        model.fit(data, verbose=0)
        watcher.join()
        # The end of the data ended a wait. Time that passes after it is no input.
        event()
        model.fit(x, y, batch_size=64, verbose=0)
        before = event()
        time.sleep(0.2)
        assert event()["input_s"] == 0.0
        assert before["steps"] == 1, before
        go.clear()
        watcher = threading.Thread(target=watch)
        watcher.start()
        for _ in data: pass  # eager
        watcher.join()
        """
    )


def test_saves_are_counted_and_saved_functions_are_as_without_the_measurement() -> None:
    measured_tensorflow.run(
        """
        folder = tempfile.mkdtemp()
        model = make_model()
        model.compile("sgd", "mse")
        model.fit(x, y, batch_size=8, verbose=0)
        event()
        checkpoint = tf.train.Checkpoint(model=model)
        checkpoint.save(folder + "/a")
        checkpoint.write(folder + "/b")
        tf.train.CheckpointManager(checkpoint, folder + "/c", 1).save()
        model.save(folder + "/d.keras")
        model.save_weights(folder + "/e.weights.h5")
        fields = event()
        assert fields["checkpoints"] == 5 and fields["checkpoint_s"] > 0, fields
        class Trained(tf.Module):
            def __init__(self): self.value = tf.Variable(1.0)
            @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
            def train(self, x):
                with tf.GradientTape() as tape: loss = (self.value * x) ** 2
                self.value.assign_sub(0.1 * tape.gradient(loss, self.value))
                return loss
            @tf.function(input_signature=[])
            def first(self): return next(iter(tf.data.Dataset.range(3)))
        own_module = Trained()
        own_module.train(tf.constant(1.0)), own_module.first()
        for function in (own_module.train, own_module.first):
            text = str(function.get_concrete_function().graph.as_graph_def())
            assert "smdp" not in text and "Timestamp" not in text
        tf.saved_model.save(own_module, folder + "/f")
        loaded = tf.saved_model.load(folder + "/f")
        assert loaded.first().numpy() == 0 and loaded.train(tf.constant(2.0)).numpy() > 0
        """
    )


def test_functions_print_and_fail_as_without_the_measurement() -> None:
    body = """
        import contextlib, io
        data = tf.data.Dataset.range(3)
        @tf.function
        def printing(value):
            print("traced", value)
            if value > 1: print("above")
            return value
        text = io.StringIO()
        with contextlib.redirect_stdout(text): printing(tf.constant(2)), printing(tf.constant(3))
        show(text.getvalue().split())
        @tf.function(autograph=False)
        def many(iterator): return [next(iterator) for _ in range(40)]
        @tf.function
        def over(iterator): return next(iterator)
        iterator = iter(data)
        for call in (lambda: many(iter(data)), lambda: [over(iterator) for _ in range(4)], lambda: next(iterator)):
            try: call()
            except Exception as error: show(type(error).__name__, str(error)[:60].split(chr(10))[0])
            else: assert False
        """
    lines = measured_tensorflow.run(body)
    assert len(lines) == 4
    assert lines == measured_tensorflow.run(body, env=measured_tensorflow.OFF)


EXCHANGES = """
import smdistributed.dataparallel.tensorflow as sdp
sdp.init()
model, optimizer = make_model(), tf.keras.optimizers.SGD(0.01)
batch, target = tf.constant(x), tf.constant(y)
def update():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(batch, training=True) - target) ** 2)
    tape = sdp.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
step = tf.function(update)
update(), step()
event()
marker = os.environ["MARKER"]
for number, call in enumerate((update, step)):
    sdp.barrier()
    event()
    name = f"{marker}-{number}"
    if rank == 0:  # this rank waits in the exchange until an event has the time
        def watch():
            while event()["exchange_s"] < 0.05: time.sleep(0.1)
            open(name, "w").close()
        watcher = threading.Thread(target=watch)
        watcher.start()
        call()
        watcher.join()
    else:
        while not os.path.exists(name): time.sleep(0.01)
        call()
sdp.barrier()
event()
for _ in range(3): step()
fields = numbers(3, 0, 0)
assert fields["backward_s"] > 0 and fields["exchange_s"] > 0 and fields["forward_s"] > 0, fields
model = make_model()
model.compile(sdp.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), "mse")
model.fit(x, y, batch_size=8, verbose=0, callbacks=[sdp.BroadcastVariablesCallback()])
fields = numbers(8, 8, 64)
assert fields["exchange_s"] > 0 and fields["backward_s"] > 0, fields
sdp.barrier()
"""


def test_wait_for_another_rank_is_exchange_while_it_lasts(tmp_path: object) -> None:
    measured_tensorflow.run(EXCHANGES, size=2, env={"MARKER": f"{tmp_path}/go"})
