"""Every call of smdistributed.dataparallel.tensorflow, eager and in functions: what it computes and what it refuses.

One job of four ranks on two hosts runs all cases, one after the other: starting its processes is what takes time.
"""

from typing import List

import pytest
import ranks

pytestmark = pytest.mark.tensorflow

INIT = """
sdp.init()
def mine(*shape, dtype=tf.float32, of=None):
    generator = np.random.default_rng(1000 + (rank if of is None else of))
    return tf.cast(generator.integers(1, 50, shape), dtype)
def of_all(*shape, dtype=tf.float32):
    return np.stack([mine(*shape, dtype=tf.float64, of=one).numpy() for one in range(size)])
def refuses(kind, text, body):
    try:
        body()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")
"""

CASES = {
    "who it is": """
assert (sdp.rank(), sdp.size(), sdp.local_rank(), sdp.local_size()) == (rank, 4, rank % 2, 2)
assert sdp.is_initialized()
refuses(RuntimeError, "init() called more than once", sdp.init)
""",
    "allreduce of every type and operation, eager and in a function": """
@tf.function
def reduced(tensors, op):
    return [sdp.allreduce(one, i, len(tensors), op=op) for i, one in enumerate(tensors)]
for op, expected in (("average", "mean"), ("sum", "sum"), ("min", "min"), ("max", "max")):
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"):
        dtype = tf.as_dtype(name)
        values = [mine(3, 2, dtype=dtype) // tf.cast(4, dtype), mine(5, dtype=dtype) // tf.cast(4, dtype)]
        wanted = [getattr(of_all(*shape).astype(dtype.as_numpy_dtype) // dtype.as_numpy_dtype(4), expected)(0)
                  for shape in ((3, 2), (5,))]
        eager = [sdp.allreduce(one, i, 2, op=op) for i, one in enumerate(values)]
        for _ in range(3):  # the first step learns the sizes
            for found in (eager, reduced(values, op)):
                for one, value, want in zip(found, values, wanted):
                    assert one.dtype == value.dtype and one.shape == value.shape
                    want = want.astype(dtype.as_numpy_dtype).astype(float)
                    assert np.allclose(one.numpy().astype(float), want, rtol=1e-2 if dtype.size < 4 else 1e-6), (
                        name, op, one, want)
assert np.allclose(sdp.allreduce(grad=mine(4), param_index=0, num_params=1).numpy(), of_all(4).mean(0))
assert np.allclose(sdp.allreduce(mine(4), 0, 1, op=None).numpy(), of_all(4).mean(0))
""",
    "a gradient travels while others are computed": """
import threading
from smdp_engine.tensorflow.gradients import exchange
is_averaged, was_averaged = threading.Event(), []
@tf.custom_gradient
def held(x):
    def wait(gradient):
        was_averaged.append(is_averaged.wait(30))
        return gradient
    return tf.identity(x), lambda gradient: tf.ensure_shape(tf.py_function(wait, [gradient], x.dtype), x.shape)
first, last = tf.Variable(mine(64)), tf.Variable(mine(64) + 1)
how = exchange(sdp.Compression.none, True, sdp.ReduceOp.AVERAGE, bucket_cap_mb=2 ** -13)  # a buffer for each
@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(last * held(first * 2.0))
    averages = how.average(tape.gradient(loss, [first, last]))
    def tell(average):
        is_averaged.set()
        return average
    # Stateless: TensorFlow has stateful ones wait for each other.
    return averages[0], tf.numpy_function(tell, [averages[1]], tf.float32, stateful=False)
for _ in range(3):
    is_averaged.clear()
    averages = step()
    assert np.array_equal(averages[0].numpy(), 2 * (of_all(64).mean(0) + 1))
    assert np.array_equal(averages[1].numpy(), 2 * of_all(64).mean(0))
assert was_averaged == [True] * 3, "the backward pass of the first had to wait for the average of the last"
""",
    "compression": """
value = tf.constant([1.0, 1 + 2 ** -12])  # the second is no float16
assert sdp.allreduce(value, 0, 1).numpy().tolist() == value.numpy().tolist()
packed = sdp.allreduce(value, 0, 1, compression=sdp.Compression.fp16)
assert packed.dtype == tf.float32 and packed.numpy().tolist() == [1.0, 1.0]
whole = sdp.oob_allreduce(tf.constant([7]), compression=sdp.Compression.fp16)
assert whole.dtype == tf.int32 and whole.numpy().tolist() == [7]
""",
    "out-of-band averages in a function, several and in any order": """
@tf.function
def metrics(x):
    return sdp.oob_allreduce(x), sdp.oob_allreduce(x * 2), sdp.oob_allreduce(tf.reduce_sum(x))
for step in range(5):
    a, b, c = metrics(mine(3) + step)
    wanted = of_all(3).mean(0) + step
    assert np.allclose(a, wanted) and np.allclose(b, 2 * wanted) and np.allclose(c, wanted.sum())
""",
    "broadcast and allgather": """
for dtype in (tf.float32, tf.bool, tf.uint16, tf.complex64, tf.float16):
    value = tf.cast(mine(4, 3) if dtype != tf.bool else mine(4, 3) > 25, dtype)
    sent = sdp.broadcast(value, 2)
    assert sent.dtype == dtype and np.array_equal(
        sent.numpy(), tf.cast(mine(4, 3, of=2) if dtype != tf.bool else mine(4, 3, of=2) > 25, dtype).numpy())
rows = sdp.allgather(mine(rank, 3))
assert np.array_equal(rows.numpy(), np.concatenate([mine(one, 3, of=one).numpy() for one in range(size)]))
same = tf.function(sdp.allgather)(mine(2, 3))
assert np.array_equal(same.numpy(), np.concatenate([mine(2, 3, of=one).numpy() for one in range(size)]))
assert sdp.allgather(tf.zeros([0, 3])).shape == (0, 3)
refuses(ValueError, "0 to 3, found 4", lambda: sdp.broadcast(tf.constant(1.0), 4))
sdp.barrier()
tf.function(sdp.barrier)()
""",
    "gradients through the operations": """
x = tf.Variable(mine(3))
with tf.GradientTape(persistent=True) as tape:
    total = tf.reduce_sum(sdp.allreduce(x, 0, 1, op=sdp.ReduceOp.SUM) * (rank + 1))
    mean = tf.reduce_sum(sdp.allreduce(x, 0, 1) * (rank + 1))
    sent = tf.reduce_sum(sdp.broadcast(x, 1) * (rank + 1))
    gathered = tf.reduce_sum(sdp.allgather(x[: min(3, rank + 1)]) * (rank + 1))
assert tape.gradient(total, x).numpy().tolist() == [10.0] * 3
assert tape.gradient(mean, x).numpy().tolist() == [2.5] * 3
assert tape.gradient(sent, x).numpy().tolist() == [10.0 if rank == 1 else 0.0] * 3
assert tape.gradient(gathered, x).numpy().tolist() == [10.0 if i < rank + 1 else 0.0 for i in range(3)]
""",
    "a tape's gradients, dense, sparse and none": """
dense, table, unused = tf.Variable(tf.ones([2])), tf.Variable(tf.ones([6, 2])), tf.Variable(1.0)
def gradients(how, **more):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(dense * (rank + 1)) + tf.reduce_sum(tf.gather(table, [rank, 5])) * (rank + 1)
    return sdp.DistributedGradientTape(tape, **more).gradient(loss, {"a": dense, "b": [table, unused]})
wanted = np.array([[one + 1.0] * 2 for one in range(4)] + [[0.0, 0.0], [10.0, 10.0]]) / 4
for how in ("eager", "function"):
    call = gradients if how == "eager" else tf.function(gradients)
    for _ in range(3):
        found = call(how)
        assert found["a"].numpy().tolist() == [2.5, 2.5] and found["b"][1] is None
        assert np.allclose(found["b"][0].numpy(), wanted)
        rows = call(how, sparse_as_dense=False)["b"][0]
        assert isinstance(rows, tf.IndexedSlices) and rows.values.shape == (8, 2)
        assert np.allclose(tf.convert_to_tensor(rows).numpy(), wanted)
""",
    "half gradients travel and stay half": """
weight = tf.Variable(tf.ones([4], tf.float16))
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(weight * tf.cast(rank, tf.float16))
(found,) = sdp.DistributedGradientTape(tape).gradient(loss, [weight])
assert found.dtype == tf.float16 and found.numpy().tolist() == [1.5] * 4
""",
    "what the tape and the optimizer refuse": """
tape = tf.GradientTape()
optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
for make in (lambda **more: sdp.DistributedGradientTape(tape, **more),
             lambda **more: sdp.DistributedOptimizer(optimizer, **more)):
    refuses(ValueError, "device_dense is not supported", lambda: make(device_dense="/gpu:0"))
    refuses(ValueError, "device_sparse is not supported", lambda: make(device_sparse="/cpu:0"))
    refuses(ValueError, "op must be ReduceOp.AVERAGE", lambda: make(op=sdp.ReduceOp.SUM))
    refuses(ValueError, "op must be one of", lambda: make(op="median"))
for cap in (0, -1, 0.00001, 1.00001):
    refuses(ValueError, "multiple of 128", lambda: sdp.DistributedOptimizer(optimizer, bucket_cap_mb=cap))
sdp.DistributedOptimizer(optimizer, bucket_cap_mb=0.5)
refuses(ValueError, "takes an optimizer", lambda: sdp.DistributedOptimizer("adam"))
refuses(ValueError, "one tensor", lambda: sdp.allreduce(param_index=0, num_params=1))
refuses(ValueError, "0 to num_params - 1, found 3 of 3", lambda: sdp.allreduce(tf.constant(1.0), 3, 3))
refuses(ValueError, "ReduceOp.AVERAGE only", lambda: sdp.oob_allreduce(tf.constant(1.0), op=sdp.ReduceOp.SUM))
refuses(Exception, "string", lambda: sdp.allreduce(tf.constant("text"), 0, 1))
""",
    "variables": """
variables = [tf.Variable(mine(7, 3)), tf.Variable(rank), tf.Variable(mine(2, dtype=tf.float16))]
sdp.broadcast_variables(variables, root_rank=3)
assert np.array_equal(variables[0].numpy(), mine(7, 3, of=3).numpy()) and variables[1].numpy() == 3
sdp.broadcast_variables(iter([]), root_rank=0)
refuses(RuntimeError, "variables", lambda: sdp.broadcast_variables(variables[: 1 + rank % 2], root_rank=0))
refuses(RuntimeError, "broadcast_variables(model.variables", lambda: sdp.broadcast_global_variables(0))
""",
    "a graph of version 1, its optimizer and its hook": """
with tf.Graph().as_default():
    weight = tf.compat.v1.get_variable("w", initializer=float(rank))
    optimizer = sdp.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.5))
    train = optimizer.minimize(weight * (rank + 1), var_list=[weight])
    with tf.compat.v1.train.MonitoredTrainingSession(hooks=[sdp.BroadcastGlobalVariablesHook(2)]) as session:
        assert session.run(weight) == 2.0
        session.run(train)
        assert session.run(weight) == 2.0 - 0.5 * 2.5
""",
    "XLA is answered": """
weight = tf.Variable([1.0])
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight * weight)
    return sdp.DistributedGradientTape(tape).gradient(loss, [weight])
refuses(NotImplementedError, "jit_compile", tf.function(step, jit_compile=True))
loss = tf.function(lambda x: x * x, jit_compile=True)
def compiled_within():
    with tf.GradientTape() as tape:
        value = tf.reduce_sum(loss(weight))
    return sdp.DistributedGradientTape(tape).gradient(value, [weight])
assert tf.function(compiled_within)()[0].numpy().tolist() == [2.0]
assert sdp.overlap(tf.constant(3.0)).numpy() == 3.0
""",
    "200 gradients in orders of their own": """
count = 200
def in_order(order):
    def step(scale):
        before, given = [], [None] * count
        for index in order:
            with tf.control_dependencies(before):
                given[index] = tf.identity(tf.fill([1 + index * 13 % 300], scale * (index + 1)))
            before = [given[index]]
        return [sdp.allreduce(one, i, count, op=sdp.ReduceOp.SUM) for i, one in enumerate(given)]
    return tf.function(step)
generator = np.random.default_rng(rank)
functions = [in_order(generator.permutation(count)) for _ in range(5)]
digest = 0.0
for step in range(100):
    found = functions[generator.integers(len(functions))](tf.constant((rank + 1) / 3.0 + step, tf.float32))
    scale = sum((one + 1) / 3.0 + step for one in range(size))
    for index, one in enumerate(found):
        values = one.numpy()
        assert (values == values[0]).all() and abs(values[0] / (scale * (index + 1)) - 1) < 1e-6, (step, index)
        digest = (digest * 31 + float(values[0])) % 1e9
assert len(set(sdp.allgather(tf.constant([digest], tf.float64)).numpy().tolist())) == 1
""",
    "calls of one function meet their like, whatever shapes each rank saw first": """
variable = tf.Variable([1.0])
@tf.function
def gradients(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * tf.reduce_sum(x))
    return sdp.DistributedGradientTape(tape).gradient(loss, [variable])[0]
@tf.function
def both(a, b):
    return gradients(a), gradients(b)
@tf.function
def second_of_two(x):
    gradients(x[:1])
    return gradients(x)
lengths = [3, 4] if rank % 2 == 0 else [4, 3]
assert [float(one[0]) for one in both(tf.ones(lengths[:1]), tf.ones(lengths[1:]))] == [3.5, 3.5]
assert [float(one[0]) for one in both(tf.ones([3]), tf.ones([4]))] == [3.0, 4.0]
assert float(second_of_two(tf.ones([10 + rank]))[0]) == 11.5
assert float(gradients(tf.ones([10]))[0]) == 10.0
""",
    "calls of one function, and turns of a loop, do not overtake each other": """
def after(work, x):  # as late as so many products take
    steps = tf.while_loop(lambda i, _: i < work, lambda i, a: (i + 1, tf.matmul(a, a)), [0, tf.ones([150, 150]) / 1e3])
    late = tf.reduce_sum(steps[1]) * 0
    return x + tf.where(tf.math.is_finite(late), late, 0.0)
@tf.function
def once(work, x):
    return sdp.oob_allreduce(after(work, x))
@tf.function
def twice(work):
    return once(work[0], 1.0), once(work[1], 100.0)
@tf.function
def loop(work):
    def turn(i, out):
        return i + 1, out.write(i, sdp.oob_allreduce(after(work[i], tf.cast(i, tf.float32))))
    return tf.while_loop(lambda i, _: i < 4, turn, [0, tf.TensorArray(tf.float32, 4)])[1].stack()
for _ in range(5):
    work = [0, 300, 0, 0] if rank % 2 == 0 else [300, 0, 0, 0]
    assert [one.numpy() for one in twice(tf.constant(work))] == [1.0, 100.0]
    assert loop(tf.constant(work)).numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
""",
    "an average that nobody uses is exchanged all the same": """
variables = [tf.Variable(tf.ones([2])) for _ in range(3)]
@tf.function
def two_of_three(x):
    with tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(one * x) for one in variables])
    return sdp.DistributedGradientTape(tape).gradient(loss, variables)[1:]
for step in range(3):
    assert [one.numpy().tolist() for one in two_of_three(tf.constant(float(rank + step)))] == [[1.5 + step] * 2] * 2
""",
    "gradients of some of the averages": """
variables = [tf.Variable([float(one)]) for one in (2, 3, 4)]
@tf.function
def penalized(x):
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = tf.add_n([tf.reduce_sum(one ** 2 * x) for one in variables])
        own = sdp.DistributedGradientTape(inner).gradient(loss, variables)
        penalty = tf.reduce_sum(own[1] ** 2) + tf.reduce_sum(own[2] ** 2)
    return outer.gradient(penalty, variables[1])
for step in range(3):  # d (2 w)^2 / d w
    assert penalized(tf.constant(1.0)).numpy().tolist() == [24.0]
""",
    "data that end in the middle of a function": """
from smdp_engine.tensorflow.gradients import exchange
how = exchange(sdp.Compression.none, True, sdp.ReduceOp.AVERAGE)
by_tape = lambda tape, loss: sdp.DistributedGradientTape(tape).gradient(loss, variables)
as_optimizers_do = lambda tape, loss: how.average(tape.gradient(loss, variables))
by_hand = lambda tape, loss: [sdp.allreduce(one, i, 2) for i, one in enumerate(tape.gradient(loss, variables))]
variables = [tf.Variable([1.0]), tf.Variable([2.0])]
for averaged in (by_tape, as_optimizers_do, by_hand):
    @tf.function
    def step(iterator):
        x = tf.cast(next(iterator), tf.float32)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variables[0] * x) + tf.reduce_sum(variables[1] ** 2)  # one gradient needs no data
        return averaged(tape, loss)
    for epoch in range(5):
        iterator = iter(tf.data.Dataset.range(3))
        seen = []
        try:
            while True:
                seen.append([float(one[0]) for one in step(iterator)])
        except tf.errors.OutOfRangeError:
            assert seen == [[0.0, 4.0], [1.0, 4.0], [2.0, 4.0]]
""",
    "a function calls another of its name": """
def slow(value, when):
    def late(value):
        time.sleep(0.1)
        return value
    return tf.numpy_function(late, [value], tf.float32, stateful=False) if when else value
class Part:
    @tf.function
    def step(self, x):
        return sdp.oob_allreduce(slow(x, rank % 2))
class Whole:
    part = Part()
    @tf.function
    def step(self, x):
        own = sdp.oob_allreduce(slow(x, rank % 2 == 0))
        return own, self.part.step(100 * x), sdp.oob_allreduce(10 * x)
whole = Whole()
for turn in range(5):
    x = 1.0 + turn
    assert [float(one) for one in whole.step(tf.constant(x))] == [x, 100 * x, 10 * x]
""",
    "gradients of functions, whatever else a rank has traced": """
for extra in range(rank * 3):
    tf.function(lambda x: x + 1)(tf.ones([2]))
@tf.function
def exchanging(x):
    return sdp.allreduce(x * x, 0, 1) + sdp.broadcast(x, 1) + tf.reduce_sum(sdp.allgather(x))
@tf.function
def nested(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = exchanging(x)
    return value, tape.gradient(value, x)
x = tf.constant([3.0, 4.0])
for turn in range(3):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = exchanging(x)
    for found, gradient in ((value, tape.gradient(value, x)), nested(x)):
        assert found.numpy().tolist() == [9.0 + 3 + 28, 16.0 + 4 + 28]
        # Of the averages 2 x; of the root's values as many as there are ranks; of the rows 2 elements of each of them.
        wanted = [2 * 3.0 + 8, 2 * 4.0 + 8] if rank != 1 else [2 * 3.0 + 4 + 8, 2 * 4.0 + 4 + 8]
        assert gradient.numpy().tolist() == wanted, (gradient, wanted)
""",
    "what a session repeats, and what it has to run": """
with tf.Graph().as_default():
    refuses(NotImplementedError, "nothing orders the turns of a loop", lambda: tf.while_loop(
        lambda i: i < 3, lambda i: i + sdp.allreduce(i, 0, 1), [tf.constant(1)]))
    refuses(NotImplementedError, "or the calls of a tf.function", lambda: tf.function(sdp.oob_allreduce)(tf.ones([2])))
with tf.Graph().as_default():
    weight = tf.compat.v1.get_variable("w", initializer=float(rank))
    both = [sdp.broadcast_variables([weight], 3), sdp.barrier()]
    with tf.compat.v1.Session() as session:
        session.run(weight.initializer)
        session.run(both)
        assert session.run(weight) == 3.0
assert sdp.barrier() is None
assert tf.function(sdp.barrier)() is None
""",
    "lists that differ between ranks": """
def gives(variables):
    def step():
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(one) for one in variables])
        return sdp.DistributedGradientTape(tape).gradient(loss, variables)
    return step
shapes = gives([tf.Variable(tf.ones([7])), tf.Variable(tf.ones([8 + (rank == 2)]))])
numbers = gives([tf.Variable(tf.ones([10])) for _ in range(1 + (rank == 2))])  # lists that no rank has had
for step in (shapes, tf.function(shapes)):
    refuses(tf.errors.InvalidArgumentError, "number 1 of 2 is float32", step)
for step in (numbers, tf.function(numbers)):
    refuses(tf.errors.InvalidArgumentError, "none may be None on some ranks only", step)
""",
    "a function that trains is not saved": """
class Trained(tf.Module):
    def __init__(self):
        self.weight = tf.Variable(2.0)
    @tf.function
    def train(self):
        return sdp.oob_allreduce(self.weight)
    @tf.function(input_signature=[tf.TensorSpec([])])
    def apply(self, x):
        return self.weight * x
import tempfile
trained, served = Trained(), tf.Module()
trained.train()
served.apply = trained.apply
with tempfile.TemporaryDirectory() as folder:
    refuses(ValueError, "keep functions that train out of what you save", lambda: tf.saved_model.save(trained, folder))
    served.weight = trained.weight
    tf.saved_model.save(served, folder)
    loaded = tf.saved_model.load(folder)
    assert loaded.apply(tf.constant(3.0)).numpy() == 6.0
""",
    "rows that cannot be gathered": """
refuses(tf.errors.InvalidArgumentError, "a tensor without dimensions has no rows",
        lambda: sdp.allgather(tf.constant(1.0)))
refuses(tf.errors.InvalidArgumentError, "only the first dimension may differ",
        lambda: sdp.allgather(tf.ones([2, 3 * rank])))
assert sdp.allgather(tf.ones([rank])).shape == (6,)
""",
    "what is no variable, and variables that differ": """
listed = tf.Variable(float(rank))
sdp.broadcast_variables(lambda: [listed], 2)
assert listed.numpy() == 2.0
refuses(ValueError, "found ndarray in place 1", lambda: sdp.broadcast_variables([tf.Variable(1.0), np.ones(2)], 0))
refuses(RuntimeError, "as many, of other types or shapes",
        lambda: sdp.broadcast_variables([tf.Variable(tf.ones([1 + rank]))], 0))
""",
    "a list that changes its sizes": """
@tf.function(reduce_retracing=True, input_signature=[tf.TensorSpec([None])])
def reduced(x):
    return [sdp.allreduce(x, 0, 2), sdp.allreduce(tf.zeros([3]), 1, 2)]
reduced(tf.zeros([4])), reduced(tf.zeros([4]))
refuses(tf.errors.InvalidArgumentError, "gradient 0 of 2 had 4 elements", lambda: reduced(tf.zeros([5])))
assert sdp.allreduce(mine(2), 0, 1).shape == (2,)
""",
}


@pytest.fixture(scope="module")
def outcomes() -> List[ranks.Outcome]:
    """What the ranks of the one job said."""
    body = INIT + ranks.in_turn(CASES)
    environment = {"TF_CPP_MIN_LOG_LEVEL": "2"}
    return ranks.start([2, 2], body, preamble=ranks.TENSORFLOW, env=environment).finish(280)


@pytest.mark.parametrize("name", CASES)
def test_operations(name: str, outcomes: List[ranks.Outcome]) -> None:
    for outcome in outcomes:
        assert f"passed {name}\n" in outcome.out, f"rank {outcome.rank}: {outcome.err}"


def test_the_job_ends_well(outcomes: List[ranks.Outcome]) -> None:
    assert [outcome.code for outcome in outcomes] == [0, 0, 0, 0], [outcome.err for outcome in outcomes]
    assert "smdistributed.dataparallel.tensorflow is smdp-engine" in outcomes[0].err
