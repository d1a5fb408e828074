"""Cases of test_tensorflow_operations.py: the results and errors of each operation."""

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
    "rank and sizes": """
assert (sdp.rank(), sdp.size(), sdp.local_rank(), sdp.local_size()) == (rank, 4, rank % 2, 2)
assert sdp.is_initialized()
refuses(RuntimeError, "init() called more than once", sdp.init)
""",
    "allreduce of every type and operation, eager and in a function": """
@tf.function
def reduced(tensors, op):
    return [sdp.allreduce(one, i, len(tensors), op=op) for i, one in enumerate(tensors)]
for op, expected in (("average", "mean"), ("sum", "sum"), ("min", "min"), ("max", "max")):
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "uint16", "uint32"):
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
large = tf.constant([2 ** 32 - 1 - rank], tf.uint32)
assert sdp.oob_allreduce(large).numpy().tolist() == [2 ** 32 - 3]  # of 2 ** 32 - 2.5, truncated
assert sdp.allreduce(large, 0, 1, op=sdp.ReduceOp.MAX).numpy().tolist() == [2 ** 32 - 1]
assert np.allclose(sdp.allreduce(grad=mine(4), param_index=0, num_params=1).numpy(), of_all(4).mean(0))
assert np.allclose(sdp.allreduce(mine(4), 0, 1, op=None).numpy(), of_all(4).mean(0))
""",
    "a gradient is sent while others are computed": """
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
    def report(average):
        is_averaged.set()
        return average
    # Stateless: TensorFlow runs stateful operations one after the other.
    return averages[0], tf.numpy_function(report, [averages[1]], tf.float32, stateful=False)
for _ in range(3):
    is_averaged.clear()
    averages = step()
    assert np.array_equal(averages[0].numpy(), 2 * (of_all(64).mean(0) + 1))
    assert np.array_equal(averages[1].numpy(), 2 * of_all(64).mean(0))
assert was_averaged == [True] * 3, "the backward pass of the first had to wait for the average of the last"
""",
    "compression": """
value = tf.constant([1.0, 1 + 2 ** -12])  # float16 cannot represent the second value
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
    "half gradients are sent and returned in half precision": """
weight = tf.Variable(tf.ones([4], tf.float16))
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(weight * tf.cast(rank, tf.float16))
(found,) = sdp.DistributedGradientTape(tape).gradient(loss, [weight])
assert found.dtype == tf.float16 and found.numpy().tolist() == [1.5] * 4
""",
    "invalid arguments of the tape and the optimizer are refused": """
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
for dtype in (tf.string, tf.uint64, tf.complex64):
    value = tf.constant("text") if dtype == tf.string else tf.cast([1], dtype)
    for call in (lambda: sdp.allreduce(value, 0, 1), lambda: tf.function(sdp.oob_allreduce)(value)):
        refuses(TypeError, f"{dtype.name} cannot be reduced, only float16, ", call)
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
    "XLA is refused": """
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
}
